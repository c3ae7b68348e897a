//! Connections by other means than TCP: a simulation replaces the system's network with its own.

use std::{io, pin::Pin};

use http::Uri;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection to another program.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

pub type Dialled = Pin<Box<dyn Future<Output = io::Result<Box<dyn Wire>>> + Send>>;

/// Makes connections in place of TCP.
pub trait Dial: Send + Sync + 'static {
    /// Connects to the server that the scheme and authority of this URI name. The connection carries plain text,
    /// whatever the scheme.
    fn dial(&self, to: &Uri) -> Dialled;
}
