//! Mutual TLS between the services: a caller without a certificate from the authority gets no answer.

use std::path::Path;

use http::Method;
use tempfile::TempDir;
use tests::{
    harness::{Deployment, Form, Options, Server, Settings, Stack, raw},
    upstream::Script,
};

use crate::operation::{
    certificates::Signed,
    reload::{RELOADED, logged},
};

const CERT: &str = "FAREGATE_INTERNAL_TLS_CERT";
const KEY: &str = "FAREGATE_INTERNAL_TLS_KEY";
const CA: &str = "FAREGATE_INTERNAL_TLS_CA";

/// Returns the settings for the certificate and its key.
fn identity(signed: &Signed) -> Vec<(&'static str, String)> {
    vec![(CERT, signed.file("cert.pem")), (KEY, signed.file("key.pem"))]
}

async fn secured(signed: &Signed) -> Stack {
    let mut env = identity(signed);
    env.push((CA, signed.file("ca.pem")));
    Stack::with(Options { deployment: Deployment::services(2, 2, Form::Alone), env, ..Options::default() })
        .await
}

/// Asserts that this gateway serves neither models nor management requests, and that none of its requests reached the
/// upstream.
async fn assert_serves_no_request(stack: &Stack, gateway: &Server) {
    let before = stack.upstream.generations().len();
    let key = stack.key().await;
    let answer = stack.call_at(gateway, &key, Script::tokens(12, 5)).send().await;
    answer.assert_error(503, "service_unavailable");
    let url = format!("{}/v1/management/keys", gateway.public());
    let answer = stack.http.send_as(&stack.account.management_key, Method::GET, &url, None).await;
    answer.assert_error(503, "service_unavailable");
    assert_eq!(stack.upstream.generations().len(), before);
}

/// Returns the settings for a gateway without TLS, in its own directory.
fn without_tls(stack: &Stack, folder: &Path) -> Settings {
    let mut settings = stack.server().settings().clone();
    folder.clone_into(&mut settings.data);
    settings.env.retain(|(name, _)| !name.starts_with("FAREGATE_INTERNAL_TLS"));
    settings
}

#[apply(fact)]
async fn services_with_certificates_of_one_authority_serve_and_strangers_are_not_answered() {
    let (ours, other) = (Signed::new(), Signed::new());
    let stack = secured(&ours).await;
    let key = stack.key().await;
    for gateway in &stack.gateways {
        assert_eq!(stack.call_at(gateway, &key, Script::tokens(12, 5)).send().await.status, 200);
        stack.call_at(gateway, &key, Script::tokens(12, 5)).stream().await.rest().await.assert_done();
    }
    assert_eq!(stack.get(&key, "/v1/models").await.status, 200);

    let stranger = stack.another_gateway(identity(&other)).await;
    assert_serves_no_request(&stack, &stranger).await;
    drop(stranger);

    let folder = TempDir::new().unwrap();
    let mut plain = without_tls(&stack, folder.path());
    for (name, value) in &mut plain.env {
        if name.starts_with("FAREGATE_KEY_SERVICE") {
            *value = value.replace("https://", "http://");
        }
    }
    assert_serves_no_request(&stack, &Server::start(&plain).await).await;
    for listener in ["key-http", "key-grpc"] {
        let address = stack.key_services[0].address(listener);
        assert!(address.starts_with("https://"), "{address}");
        let request = "GET /v1/management/keys HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let answer = raw(&address.replace("https://", "http://"), request).await;
        assert!(!answer.contains("HTTP/1.1"), "{answer:?}");
    }
}

#[apply(fact)]
async fn files_and_addresses_that_do_not_fit_are_refused_with_their_setting() {
    let (ours, other) = (Signed::new(), Signed::new());
    let stack = secured(&ours).await;
    for (settings, of) in
        [(stack.key_services[0].settings(), "key-service"), (stack.server().settings(), "gateway")]
    {
        for (setting, file) in
            [(CERT, ours.file("key.pem")), (KEY, other.file("key.pem")), (CA, ours.file("none.pem"))]
        {
            let folder = TempDir::new().unwrap();
            let mut settings = settings.clone();
            settings.data = folder.path().to_owned();
            settings.env.push((setting, file));
            let log = Server::refuses(&settings).await;
            assert!(log.contains(&format!("error: {setting}")), "{of}: {log}");
        }
    }
    let folder = TempDir::new().unwrap();
    let log = Server::refuses(&without_tls(&stack, folder.path())).await;
    assert!(log.contains("error: FAREGATE_KEY_SERVICE"), "{log}");
}

#[apply(fact)]
async fn certificates_of_another_authority_are_taken_over_without_a_restart() {
    let signed = Signed::new();
    let stack = secured(&signed).await;
    let (key, first) = (stack.key().await, signed.text("ca.pem"));
    let old = Signed::new();
    for name in ["ca.pem", "cert.pem", "key.pem"] {
        old.write(name, &signed.text(name));
    }
    // During the change, both authorities are trusted.
    signed.renew();
    signed.write("ca.pem", &format!("{first}{}", signed.text("ca.pem")));
    for server in stack.key_services.iter().chain(&stack.gateways) {
        server.reload();
        logged(server, RELOADED, 1).await;
    }
    // A process that starts now knows only the new certificate, and its clients must present new ones.
    let renewed = signed.text("ca.pem").replace(&first, "");
    signed.write("ca.pem", &renewed);
    for key_service in &stack.key_services {
        key_service.restart().await;
    }
    for gateway in &stack.gateways {
        assert_eq!(stack.call_at(gateway, &key, Script::tokens(12, 5)).send().await.status, 200);
        let url = format!("{}/v1/management/keys", gateway.public());
        let listed = stack.http.send_as(&stack.account.management_key, Method::GET, &url, None).await;
        assert_eq!(listed.status, 200, "{listed}");
    }
    let mut settings = identity(&old);
    settings.push((CA, old.file("ca.pem")));
    assert_serves_no_request(&stack, &stack.another_gateway(settings).await).await;
}
