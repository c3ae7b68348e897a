//! Tests of a Redis with TLS, access lists and passwords.

use std::{fs, path::Path};

use certificates::{Authority, Issued};
use tempfile::TempDir;

use super::{Committed, Durability, Question, Records, SET, Space, create, has, name, open, record, space};
use crate::{
    records::{Commit, Write},
    redis::{Address, Certificates, Settings},
    servers::{Cluster, RedisServer, Watched, free_port, settings},
};

/// All permissions that the store needs, as documented in docs/store.md. It also needs `+waitaof` where the server has
/// it, and `+cluster|slots +cluster|info` in a cluster.
const GRANTS: &str = "~store-* +@read +@write +@scripting +@connection +info +time +config|get +bgrewriteaof";

/// Certificates that an authority signed, as files for a server and as texts for the client.
pub(super) struct Signed {
    folder: TempDir,
    authority: Vec<u8>,
    own: (Vec<u8>, Vec<u8>),
}

impl Signed {
    pub(super) fn new() -> Self {
        Self::of("localhost")
    }

    /// Signs a server certificate for this host.
    fn of(host: &str) -> Self {
        let authority = Authority::new();
        let folder = tempfile::tempdir().unwrap();
        let Issued { certificate, key } = authority.issue(host);
        fs::write(folder.path().join("authority.pem"), authority.pem()).unwrap();
        fs::write(folder.path().join("certificate.pem"), certificate).unwrap();
        fs::write(folder.path().join("key.pem"), key).unwrap();
        let Issued { certificate, key } = authority.issue("key-service");
        Self { folder, authority: authority.pem().into_bytes(), own: (certificate.into(), key.into()) }
    }

    pub(super) fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

async fn serves(settings: &Settings) {
    let store = open(settings).await.unwrap();
    assert_eq!(create(&store, "one").await, Ok(Committed::Written));
    store.settle(&space(), Durability::Durable, store.term(&space()).await).await.unwrap();
    assert_eq!(has(&store, "one").await, Ok(true));
    let questions = vec![Question::Records(vec![name("one"), name("two")]), Question::Set(SET, None)];
    store.read(&space(), questions).await.unwrap();
    let dropped = Commit { guards: Vec::new(), writes: vec![Write::Drop(SET)] };
    assert_eq!(store.commit(&space(), dropped).await, Ok(Committed::Written));
    store.places().await.unwrap();
    store.is_nearly_full().await.unwrap();
    store.try_write().await.unwrap();
    assert!(store.clock_skew().await.unwrap().is_some(), "its clock may be asked");
}

fn at(url: &str, data_dir: &Path, certificates: Certificates) -> Settings {
    let folder = TempDir::new_in(data_dir).unwrap();
    Settings { address: Address::parse(url).unwrap(), certificates, ..settings("redis://localhost", &folder) }
}

#[tokio::test]
async fn a_redis_behind_tls_is_used_when_both_sides_trust_the_others_authority() {
    let signed = Signed::new();
    let port = free_port();
    let _server = RedisServer::start_with(&[
        "--port",
        "0",
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &signed.file("certificate.pem"),
        "--tls-key-file",
        &signed.file("key.pem"),
        "--tls-ca-cert-file",
        &signed.file("authority.pem"),
        "--tls-auth-clients",
        "yes",
    ]);
    let url = format!("rediss://localhost:{port}");
    let folder = tempfile::tempdir().unwrap();
    let both = Certificates::new(Some(signed.authority.clone()), Some(signed.own.clone()));
    serves(&at(&url, folder.path(), both)).await;
    let nobody = Certificates::new(Some(signed.authority.clone()), None);
    assert!(open(&at(&url, folder.path(), nobody)).await.is_err(), "it wants to see a certificate");
    let other = Certificates::new(Some(Signed::new().authority), Some(signed.own.clone()));
    let refused = open(&at(&url, folder.path(), other)).await.err().unwrap();
    assert!(refused.contains("certificate"), "an authority that did not sign it: {refused}");
    assert!(open(&at(&url, folder.path(), Certificates::default())).await.is_err(), "nor did the system's");
}

/// Masters announce an address or a name to clients, and their certificates are issued for it.
#[tokio::test]
async fn a_cluster_behind_tls_is_used_by_addresses_and_by_names() {
    let folder = tempfile::tempdir().unwrap();
    for host in [None, Some("localhost")] {
        let signed = Signed::of(host.unwrap_or("127.0.0.1"));
        let cluster = Cluster::start_secured(signed.folder.path(), host);
        let certificates = Certificates::new(Some(signed.authority.clone()), Some(signed.own.clone()));
        let settings = at(&cluster.url(), folder.path(), certificates);
        serves(&settings).await;
        let store = open(&settings).await.unwrap();
        for n in 0..12 {
            let space = Space::new(format!("account {n}"));
            let writes = vec![Write::Put(name("one"), record("1"))];
            assert_eq!(
                store.commit(&space, Commit { writes, ..Commit::default() }).await,
                Ok(Committed::Written)
            );
        }
        let other = Certificates::new(Some(Signed::new().authority), Some(signed.own.clone()));
        let refused = open(&at(&cluster.url(), folder.path(), other)).await.err().unwrap();
        assert!(refused.contains("certificate"), "an authority that did not sign it: {refused}");
    }
}

#[tokio::test]
async fn the_documented_rights_are_enough_and_an_error_about_a_wrong_password_does_not_repeat_it() {
    let user = format!("on >open-sesame {GRANTS}");
    let mut options = vec!["--port", "0", "--user", "faregate"];
    options.extend(user.split(' '));
    let server = RedisServer::start_with(&options);
    let folder = tempfile::tempdir().unwrap();
    let signed_in = |password: &str| format!("{}?user=faregate&pass={password}", server.url());
    serves(&at(&signed_in("open-sesame"), folder.path(), Certificates::default())).await;
    let refused = open(&at(&signed_in("a-secret-guess"), folder.path(), Certificates::default())).await.err();
    let refused = refused.unwrap();
    assert!(refused.contains("authentication failed") && !refused.contains("secret-guess"), "{refused}");
}

#[tokio::test]
async fn the_documented_rights_are_enough_behind_a_sentinel_and_in_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let watched = Watched::start();
    let set_user = |servers: &[RedisServer], user: &str| {
        for server in servers {
            assert_eq!(server.ask(&format!("ACL SETUSER faregate {user}")).as_deref(), Some("+OK"));
        }
    };
    set_user(&watched.servers, &format!("on >open-sesame {GRANTS}"));
    let signed_in = |url: &str| {
        let url = url.replace("://", "://faregate:open-sesame@");
        at(&url, folder.path(), Certificates::default())
    };
    serves(&signed_in(&watched.url())).await;

    let cluster = Cluster::start();
    set_user(&cluster.masters, &format!("on >open-sesame {GRANTS}"));
    let refused = open(&signed_in(&cluster.url())).await.err().unwrap();
    assert!(refused.contains("NOPERM") || refused.contains("no permissions"), "{refused}");
    set_user(&cluster.masters, "+cluster|slots");
    serves(&signed_in(&cluster.url())).await;
}

/// Redis reads its file as the user `default`, and skips the commands that this user may not run.
#[tokio::test]
async fn a_redis_that_forgot_what_its_default_user_may_not_do_is_found_out() {
    let user = format!("on >open-sesame {GRANTS}");
    let mut options = vec!["--port", "0", "--user", "faregate"];
    options.extend(user.split(' '));
    options.extend(["--user", "default", "on", "nopass", "-@all", "+ping"]);
    let mut server = RedisServer::start_with(&options);
    let folder = tempfile::tempdir().unwrap();
    let url = format!("{}?user=faregate&pass=open-sesame", server.url());
    let settings = Settings { address: Address::parse(&url).unwrap(), ..settings(&url, &folder) };
    serves(&settings).await;
    server.kill();
    server.start_again();
    let refused = open(&settings).await.err().unwrap();
    assert!(refused.contains("Redis came back with older data"), "{refused}");
}

#[tokio::test]
async fn sentinels_that_want_a_password_are_given_theirs_and_the_master_is_given_its_own() {
    let watched = Watched::start_with_passwords("of-the-master", "of-the-sentinels");
    let folder = tempfile::tempdir().unwrap();
    let url = watched.url().replace("redis+sentinel://", "redis+sentinel://:of-the-master@");
    let url_of = |query: &str| at(&format!("{url}{query}"), folder.path(), Certificates::default());
    serves(&url_of("?sentinel_password=of-the-sentinels")).await;
    assert!(open(&url_of("?sentinel_password=wrong")).await.is_err());
    assert!(open(&url_of("")).await.is_err());
}
