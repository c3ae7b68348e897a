//! The processes that are tested, and the servers that they need: a load balancer, receivers, a Redis, a vendor.

pub(crate) mod balancer;
pub(crate) mod otlp_receiver;
pub(crate) mod ports;
pub(crate) mod receiver;
pub(crate) mod redis;
pub(crate) mod server;
pub(crate) mod stand_in;
