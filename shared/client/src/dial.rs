//! Connections made otherwise than by TCP: a simulation puts its own network in place of the system's.

use std::{io, pin::Pin};

use http::Uri;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection to another program.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

pub type Dialled = Pin<Box<dyn Future<Output = io::Result<Box<dyn Wire>>> + Send>>;

/// Makes connections instead of TCP.
pub trait Dial: Send + Sync + 'static {
    /// Connects to the scheme and authority of this URI. The connection carries plain text, whatever the scheme is.
    fn dial(&self, to: &Uri) -> Dialled;
}
