//! What a request passes through before it reaches its handler: listener, TLS, admission, and the checks of its head
//! and body.

pub mod admission;
pub mod http;
pub mod limits;
pub mod serve;
pub mod tls;

#[cfg(test)]
mod fuzz;
