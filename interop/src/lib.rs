//! Hustings under the eyes of the `etcd-client` crate, which nobody here wrote: see `tests/etcd_client.rs`.
//!
//! A workspace of its own, outside of the other: the foreign client's build script wants `protoc`
//! (`apt-get install -y protobuf-compiler`). Run it with `cargo test` here, and `HUSTINGS_BINARY` naming the binary.
