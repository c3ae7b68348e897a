//! What a request passes through before its handler: listener, TLS, admission, and the checks of head and body.

pub mod admission;
pub mod http;
pub mod limits;
pub mod serve;
pub mod tls;

#[cfg(test)]
mod fuzz;
