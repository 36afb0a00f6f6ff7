//! The stores that can arbitrate.

pub(crate) mod etcd;
