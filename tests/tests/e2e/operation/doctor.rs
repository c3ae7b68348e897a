//! The command `doctor` of every program. It reports what works and what does not, and its exit status is that of the
//! worst finding.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::Value;
use tempfile::TempDir;
use tests::harness::{Deployment, Form, Options, Server, Settings, Stack};

/// Runs `doctor` of a program. Returns its exit status and its findings.
fn findings(settings: &Settings) -> (i32, Vec<Value>) {
    let (status, printed, error) = settings.try_cli(&["doctor", "--json"]);
    let findings: Vec<Value> =
        serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{e}: {printed}{error}"));
    (status.code().unwrap(), findings)
}

/// Returns the text of the findings of a check that have this severity.
fn said<'a>(findings: &'a [Value], check: &str, severity: &str) -> Vec<&'a str> {
    let of = findings.iter().filter(|it| it["check"] == check && it["severity"] == severity);
    of.map(|it| it["says"].as_str().unwrap()).collect()
}

#[apply(fact)]
async fn of_services_every_part_is_looked_at_and_a_fault_is_found_where_it_is() {
    let deployment = Deployment::Services { gateways: 1, key_services: 1, redis: Form::Alone };
    let stack = Stack::with(Options { deployment, ..Options::default() }).await;
    let of_key_service = stack.key_services[0].settings().clone();
    let (_, found) = findings(&of_key_service);
    for check in ["settings", "secrets", "limits", "catalogue", "store", "clock", "certificates"] {
        assert!(!said(&found, check, "well").is_empty(), "{check}: {found:?}");
    }
    assert!(found.iter().all(|it| it["severity"] != "error"), "{found:?}");
    assert!(said(&found, "store", "well").iter().any(|says| says.contains("accepts writes")), "{found:?}");
    let (_, told, _) = of_key_service.try_cli(&["doctor"]);
    assert!(told.lines().count() == found.len() && told.contains("well  store"), "{told}");

    let of_gateway = stack.server().settings().clone();
    let (_, found) = findings(&of_gateway);
    assert!(said(&found, "key-service", "well")[0].contains("accepts the token"), "{found:?}");
    let mut guessing = of_gateway.clone();
    guessing.env.push(("FAREGATE_INTERNAL_TOKEN", "a-guess-long-enough".into()));
    let (status, found) = findings(&guessing);
    assert_eq!((status, said(&found, "key-service", "error").len()), (2, 1), "{found:?}");
    let print = |found: &[Value]| {
        said(found, "secrets", "well")
            .into_iter()
            .find(|it| it.contains("internal token has"))
            .map(str::to_owned)
    };
    assert_ne!(print(&found), print(&findings(&of_gateway).1), "fingerprints of the tokens differ");

    let mut other_pepper = of_key_service.clone();
    other_pepper.env.push(("FAREGATE_PEPPER", "0123".repeat(16)));
    let (status, found) = findings(&other_pepper);
    assert!(status == 2 && said(&found, "store", "error")[0].contains("FAREGATE_PEPPER"), "{found:?}");

    stack.redis().ask(0, "CONFIG SET maxmemory 1mb");
    let (status, found) = findings(&of_key_service);
    let errors = said(&found, "store", "error");
    assert!(status == 2 && errors.iter().any(|says| says.contains("OOM")), "{found:?}");
    assert!(errors.iter().any(|says| says.contains("% of its space")), "{found:?}");
    stack.redis().ask(0, "CONFIG SET maxmemory 0");
    stack.redis().ask(0, "CONFIG SET maxmemory-policy allkeys-lru");
    let (status, found) = findings(&of_key_service);
    assert!(status == 2 && said(&found, "store", "error")[0].contains("noeviction"), "{found:?}");
    stack.redis().ask(0, "CONFIG SET maxmemory-policy noeviction");
}

#[apply(fact)]
async fn a_master_that_goes_on_without_its_replicas_is_a_warning() {
    let deployment = Deployment::Services { gateways: 1, key_services: 1, redis: Form::WithReplica };
    let stack = Stack::with(Options { deployment, ..Options::default() }).await;
    let settings = stack.key_services[0].settings();
    let warnings = || {
        findings(settings)
            .1
            .iter()
            .filter(|it| it["says"].to_string().contains("min-replicas-to-write"))
            .count()
    };
    assert_eq!(warnings(), 1);
    stack.redis().ask(0, "CONFIG SET min-replicas-to-write 1");
    assert_eq!(warnings(), 0);
}

#[apply(fact)]
async fn a_first_look_makes_nothing_and_a_secret_that_others_may_read_is_a_warning() {
    let folder = TempDir::new().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "between-the-services").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    let env = vec![("FAREGATE_INTERNAL_TOKEN_FILE", token.display().to_string())];
    let settings = Settings::all_in_one(folder.path(), env);
    let (status, found) = findings(&settings);
    assert!(said(&found, "secrets", "warning")[0].contains("mode 644"), "{found:?}");
    assert!(status == 1 && said(&found, "store", "well")[0].contains("first start creates"), "{found:?}");
    assert!(!folder.path().join("data").exists(), "nothing was made");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let (status, found) = findings(&settings);
    assert_eq!(status, 0, "{found:?}");

    // A file that a process is using can be checked too.
    let server = Server::start(&settings).await;
    let (_, found) = findings(&settings);
    assert!(said(&found, "store", "well").iter().any(|says| says.contains("accepts writes")), "{found:?}");
    // The disk of this machine may be full, or nearly full.
    let of_the_disk = |it: &Value| it["check"] == "store" && it["says"].to_string().contains("of its space");
    let troubles: Vec<_> = found.iter().filter(|it| it["severity"] != "well" && !of_the_disk(it)).collect();
    assert!(troubles.is_empty(), "{troubles:?}");
    server.kill();
    let mut broken = settings;
    broken.env.push(("FAREGATE_MODELS", "none.toml".into()));
    let (status, found) = findings(&broken);
    assert!(status == 2 && said(&found, "catalogue", "error")[0].contains("none.toml"), "{found:?}");
}
