//! Fuzz target for the addresses of webhooks.

use domain::webhook::{Host, WebhookUrl};
use http::Uri;
use shared_fuzz::{Examples, Input, fuzz};

/// Checks that the HTTP client and the address check find the same host in a URL.
#[test]
fn webhook_addresses() {
    let examples = [
        "https://example.com:8443/hook?token=a%20b&c=d",
        "https://[2606:4700::1111]:443/x",
        "http://127.0.0.1:9000/hook",
        "https://user@example.com./?a@b:1/c",
    ];
    fuzz(&Examples::of(examples), |input: &Input| {
        let Ok(url) = WebhookUrl::stored(&input.text()) else { return };
        let uri: Uri = url.as_str().parse().unwrap();
        let host = uri.host().and_then(Host::parse);
        assert_eq!(host.as_ref(), Some(url.host()));
        assert!(uri.port().is_none_or(|port| port.as_u16() > 0));
        assert_eq!(uri.authority().map(|authority| authority.as_str().contains('@')), Some(false));
    });
}
