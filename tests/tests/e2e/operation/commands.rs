//! Commands that are sent to a running process through its admin port. They drain upstreams and set the log filter. The
//! tests also check who may send them.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::{
    harness::{Deployment, Form, LOOK_EVERY, Options, PATIENCE, Server, Settings, Stack, raw},
    upstream::{Fault, Script, Shape},
};
use tokio::time::sleep;

/// Returns what a command prints. If it fails, returns its error.
fn command(server: &Server, arguments: &[&str]) -> Result<String, String> {
    let admin = server.admin().trim_start_matches("http://");
    let arguments = [&["--admin-listen", admin], arguments].concat();
    let (status, printed, error) = server.settings().try_cli(&arguments);
    if status.success() { Ok(printed) } else { Err(error) }
}

/// Returns the only upstream, as the command lists it.
fn listed(server: &Server) -> Value {
    let list = command(server, &["upstreams", "list", "--json"]).unwrap();
    serde_json::from_str::<Value>(&list).unwrap()[0].take()
}

/// Waits until the only upstream has this state.
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
    for deployment in [Deployment::AllInOne, Deployment::services(1, 1, Form::Alone)] {
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
async fn odd_answers_are_listed_by_kind_and_a_check_of_the_catalogue_shows_them() {
    let deployment = Deployment::AllInOne;
    let stack = Stack::with(Options { deployment, ..Options::default() }).await;
    let (server, key) = (stack.server(), stack.key().await);
    let admin = server.admin().trim_start_matches("http://");
    let checked = || server.settings().try_cli(&["--admin-listen", admin, "catalogue", "check", "--ask"]).1;
    assert_eq!(listed(server)["odd_answers"], json!({}));
    assert!(checked().contains("has received no odd answers"), "{}", checked());
    for _ in 0..2 {
        let odd = Script { fault: Fault::NoFinishReason, ..Script::tokens(9, 3) };
        assert_eq!(stack.call(&key, odd).send().await.status, 200);
    }
    assert_eq!(listed(server)["odd_answers"], json!({"finish_missing": 2}));
    let table = command(server, &["upstreams", "list"]).unwrap();
    assert!(table.contains("ODD ANSWERS") && table.contains("2 finish_missing"), "{table}");
    let shown = checked();
    assert!(shown.contains("odd answers since the gateway read its catalogue: 2 finish_missing."), "{shown}");
}

#[apply(fact)]
async fn the_filter_of_log_lines_is_replaced_and_a_bad_one_is_refused_by_name() {
    let stack =
        Stack::with(Options { deployment: Deployment::services(1, 1, Form::Alone), ..Options::default() })
            .await;
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

/// Sends a request with these header lines to the admin port of a server. Returns the status of the answer.
async fn status_of(server: &Server, request: &str, lines: &str, body: &str) -> u16 {
    let length = body.len();
    let request =
        format!("{request} HTTP/1.1\r\n{lines}connection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    let answer = raw(server.admin(), &request).await;
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"))
}

#[apply(fact)]
async fn a_page_reaches_no_admin_port_by_a_name_that_leads_there() {
    let env = vec![("FAREGATE_ADMIN_HOSTS", "inference-gateway,key-service".to_owned())];
    for deployment in [Deployment::AllInOne, Deployment::services(1, 1, Form::Alone)] {
        let stack = Stack::with(Options { deployment, env: env.clone(), ..Options::default() }).await;
        let (server, key) = (stack.server(), stack.key().await);
        let upstream = listed(server)["address"].as_str().unwrap().to_owned();
        for of in std::iter::once(server).chain(&stack.key_services) {
            let token = of.settings().data.join("data").join("admin-token");
            let token = std::fs::read_to_string(token).unwrap();
            let bearer = format!("authorization: Bearer {}\r\n", token.trim());
            for (request, body) in [("PUT /log-level", "info"), ("GET /log-level", ""), ("GET /metrics", "")]
            {
                let status = async |lines: &str| status_of(of, request, lines, body).await;
                let known = ["localhost:9090", "127.0.0.1", "inference-gateway:9090", "key-service"];
                for host in known {
                    assert_eq!(status(&format!("host: {host}\r\n{bearer}")).await, 200, "{request} {host}");
                }
                for host in ["evil.example:9090", "192.0.2.1:9090", "localhost.evil.example"] {
                    assert_eq!(status(&format!("host: {host}\r\n{bearer}")).await, 421, "{request} {host}");
                }
                let of_page = format!("host: localhost\r\norigin: http://evil.example\r\n{bearer}");
                assert_eq!(status(&of_page).await, 403, "{request}");
            }
            for wrong in ["", "authorization: Bearer made-up\r\n"] {
                let lines = format!("host: localhost\r\n{wrong}");
                assert_eq!(status_of(of, "PUT /log-level", &lines, "debug").await, 401, "{wrong}");
            }
            let stalled =
                format!("PUT /log-level HTTP/1.1\r\nhost: localhost\r\n{bearer}content-length: 99\r\n\r\nin");
            assert!(raw(of.admin(), &stalled).await.starts_with("HTTP/1.1 408 "), "a body that stalls");
        }
        let page = "host: evil.example:9090\r\norigin: http://evil.example:9090\r\n";
        assert_eq!(status_of(server, "PUT /upstreams/drain", page, &upstream).await, 421);
        assert_eq!(status_of(server, "PUT /upstreams/drain", "host: localhost\r\n", &upstream).await, 401);
        assert_eq!(listed(server)["state"], "serving");
        assert_eq!(stack.call(&key, Script::tokens(9, 1)).send().await.status, 200);
    }
}

#[apply(fact)]
async fn a_command_that_changes_a_process_needs_its_data_directory() {
    let stack = Stack::start().await;
    let server = stack.server();
    let elsewhere = stack.data().join("elsewhere");
    let mut settings = server.settings().clone();
    settings.env.push(("FAREGATE_DATA_DIR", elsewhere.display().to_string()));
    let admin = server.admin().trim_start_matches("http://");
    let (status, _, error) = settings.try_cli(&["--admin-listen", admin, "log-level", "debug"]);
    assert!(!status.success() && error.contains("FAREGATE_DATA_DIR"), "{error}");
    assert!(!elsewhere.exists(), "nothing is made there");
    let (status, printed, error) = settings.try_cli(&["--admin-listen", admin, "log-level"]);
    assert!(status.success() && printed == "info\n", "a question needs no token: {error}");
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
