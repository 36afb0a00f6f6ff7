//! The versions that this server says.

/// The version of etcd that this server speaks like.
pub const VERSION: &str = "3.5.21";

/// The version of the cluster, as etcd counts it.
pub(crate) const CLUSTER_VERSION: &str = "3.5.0";
