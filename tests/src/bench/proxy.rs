//! The least that a proxy can be: axum in front, hyper behind, every byte passed through.

use std::{io, net::SocketAddr};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{Request, Response, StatusCode, Uri},
    serve::ListenerExt,
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::net::TcpListener;

/// What carries requests on, and where to.
type Target = (Client<HttpConnector, Body>, SocketAddr);

/// Passes everything on to `upstream`, for ever.
pub async fn serve(listener: TcpListener, upstream: SocketAddr) -> io::Result<()> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let app = Router::new().fallback(forward).with_state((client, upstream));
    let listener = listener.tap_io(|stream| {
        // Without it the proxy would be slower, not cheaper: no harm if it fails.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, app).await
}

async fn forward(
    State((client, upstream)): State<Target>,
    mut request: Request<Body>,
) -> Result<Response<Body>, StatusCode> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() =
        format!("http://{upstream}{path}").parse::<Uri>().map_err(|_| StatusCode::BAD_REQUEST)?;
    let response = client.request(request).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
    Ok(response.map(Body::new))
}
