//! Commands to a running process, by its admin port: upstreams that are drained, and the filter of log lines.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::{
    harness::{Deployment, LOOK_EVERY, Options, PATIENCE, Server, Settings, Stack},
    upstream::{Fault, Script, Shape},
};
use tokio::time::sleep;

/// What a command prints, or its error.
fn command(server: &Server, arguments: &[&str]) -> Result<String, String> {
    let admin = server.admin().trim_start_matches("http://");
    let arguments = [&["--admin-listen", admin], arguments].concat();
    let (status, printed, error) = server.settings().try_cli(&arguments);
    if status.success() { Ok(printed) } else { Err(error) }
}

/// The only upstream, as the command lists it.
fn listed(server: &Server) -> Value {
    let list = command(server, &["upstreams", "list", "--json"]).unwrap();
    serde_json::from_str::<Value>(&list).unwrap()[0].take()
}

/// Waits until the only upstream is in this state.
async fn becomes(server: &Server, state: &str) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let upstream = listed(server);
        if upstream["state"] == state {
            return upstream;
        }
        assert!(Instant::now() < deadline, "{upstream} does not become {state}");
        sleep(LOOK_EVERY).await;
    }
}

#[apply(fact)]
async fn a_drained_upstream_ends_what_it_has_and_gets_nothing_new_until_restored() {
    for deployment in [Deployment::AllInOne, Deployment::services(1, 1)] {
        let stack = Stack::with(Options { deployment, ..Options::default() }).await;
        let (server, key) = (stack.server(), stack.key().await);
        let upstream = listed(server);
        assert_eq!(
            (&upstream["state"], &upstream["model"], &upstream["kind"], &upstream["in_flight"]),
            (&json!("serving"), &json!("Model Flash"), &json!("vllm"), &json!(0))
        );
        assert_eq!((&upstream["last_failure"], &upstream["until"]), (&Value::Null, &Value::Null));
        let address = upstream["address"].as_str().unwrap();
        let mut stream = stack.call(&key, Script::tokens(9, 60).pace(25)).stream().await;
        stream.read_tokens(5).await;

        let told = command(server, &["upstreams", "drain", address]).unwrap();
        assert!(told.contains("draining") && told.contains(address), "{told}");
        assert_eq!(listed(server)["in_flight"], 1);
        let refused = stack.call(&key, Script::tokens(9, 1)).send().await;
        refused.assert_error(503, "upstream_unavailable");
        server.reload();
        assert_eq!(stream.rest().await.assert_done().tokens(), 60, "what is open ends");
        becomes(server, "drained").await;
        let metrics = stack.http.get(&format!("{}/metrics", server.admin())).await.text().to_owned();
        let gauge = |state: &str| format!("gateway_upstreams{{model=\"Model Flash\",state=\"{state}\"}}");
        assert!(metrics.contains(&(gauge("drained") + " 1")), "{metrics}");
        stack.call(&key, Script::tokens(9, 1)).send().await.assert_error(503, "upstream_unavailable");

        command(server, &["upstreams", "restore", address]).unwrap();
        assert_eq!(stack.call(&key, Script::tokens(9, 1)).send().await.status, 200);
        assert_eq!(listed(server)["state"], "serving");
        let error = command(server, &["upstreams", "drain", "127.0.0.1:1"]).unwrap_err();
        assert!(
            error.contains("no upstream has the address '127.0.0.1:1'") && error.contains(address),
            "{error}"
        );
    }
}

#[apply(fact)]
async fn the_list_tells_until_when_an_upstream_is_set_aside_and_the_kind_of_its_failure() {
    let stack = Stack::start().await;
    let key = stack.key().await;
    let failing =
        Script { fault: Fault::Error { status: 503, shape: Shape::Nested }, ..Script::tokens(9, 1) };
    let failed = stack.call(&key, failing).send().await;
    assert_eq!(failed.status, 503, "{failed}");
    let upstream = listed(stack.server());
    assert_eq!(upstream["state"], "set_aside");
    assert!(upstream["until"].as_str() >= upstream["since"].as_str(), "{upstream}");
    assert_eq!(upstream["last_failure"]["kind"], "overloaded", "{upstream}");
    assert!(upstream["last_failure"]["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{upstream}");
}

#[apply(fact)]
async fn the_filter_of_log_lines_is_replaced_and_a_bad_one_is_refused_by_name() {
    let stack = Stack::with(Options { deployment: Deployment::services(1, 1), ..Options::default() }).await;
    let probed = || {
        let log = stack.server().log();
        log.lines().filter(|line| line.contains("route=\"/health\"")).count()
    };
    for server in [stack.server(), &stack.key_services[0]] {
        assert_eq!(command(server, &["log-level"]).unwrap(), "info\n");
        for bad in ["inof", "inference_gateway=loud"] {
            let refused = command(server, &["log-level", bad]).unwrap_err();
            assert!(refused.contains(&format!("'{bad}'")), "{refused}");
        }
        assert_eq!(command(server, &["log-level"]).unwrap(), "info\n");
    }
    stack.http.get(&stack.url("/health")).await;
    assert_eq!(probed(), 0);
    assert_eq!(
        command(stack.server(), &["log-level", "inference_gateway=debug"]).unwrap(),
        "inference_gateway=debug\n"
    );
    stack.http.get(&stack.url("/health")).await;
    sleep(Duration::from_millis(100)).await;
    assert_eq!(probed(), 1);
    command(&stack.key_services[0], &["log-level", "debug"]).unwrap();
}

#[apply(fact)]
async fn a_command_in_a_folder_without_an_installation_says_so_and_creates_nothing() {
    let pepper = vec![("FAREGATE_PEPPER", "5a".repeat(32))];
    for (program, env) in [("faregate", Vec::new()), ("key-service", pepper)] {
        let folder = TempDir::new().unwrap();
        let settings = Settings::of(program, folder.path(), env);
        for line in [
            &["audit"][..],
            &["accounts", "list"],
            &["usage", "--account", "default"],
            &["credits", "add", "--account", "default", "--amount", "1"],
            &["sign-in-link", "--account", "default"],
            &["store", "show", "--account", "default"],
            &["backup", "--to", "backups"],
        ] {
            let (status, printed, error) = settings.try_cli(line);
            assert_eq!((status.code(), printed.as_str()), (Some(1), ""), "{program} {line:?}: {error}");
            let says = format!("error: no installation in {}", folder.path().join("data").display());
            assert!(error.contains(&says) && error.contains(&format!("`{program}` was started")), "{error}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{program} {line:?} made something");
        }
        settings.cli(&["accounts", "create", "--name", "first"]);
        assert!(settings.cli(&["audit"]).contains("the books balance (accounts: 1"));
    }
}
