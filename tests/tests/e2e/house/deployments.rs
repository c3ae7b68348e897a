//! Checks that the programs and Kubernetes understand the files in `deploy/`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tests::harness::Settings;

use crate::house::documents::root;

/// Programs that have settings.
const PROGRAMS: [&str; 4] = ["faregate", "inference-gateway", "key-service", "local-model"];
/// Variables in `docker-compose.yml`, and arguments in the Dockerfile, that none of our programs reads.
const OF_CONTAINERS: [&str; 6] = [
    "FAREGATE_COMMIT",
    "FAREGATE_PROMETHEUS_PUBLISH",
    "FAREGATE_PUBLISH",
    "FAREGATE_REGISTRY",
    "FAREGATE_SOURCE",
    "FAREGATE_VERSION",
];
/// Versions of Kubernetes with which the chart is tested: the oldest version that it accepts, and the newest known
/// version.
const KUBERNETES: [&str; 2] = ["1.27", "1.37"];
/// Settings that turn on all parts of the chart that are off by default. Parts that need the resource types of a
/// Kubernetes operator are left out.
const EVERYTHING: [&str; 5] = [
    "gateway.autoscaler.enabled=true",
    "gateway.ingress.enabled=true",
    "gateway.ingress.tlsSecret=public",
    "internalTlsSecret=internal",
    "publicUrl=https://models.example.com",
];
/// Setting with which the gateway and the key-service run in one process.
const ONE_PROCESS: &str = "oneProcess=true";

#[test]
fn every_setting_under_deploy_is_one_that_a_program_has() {
    let help: String = PROGRAMS.map(help).concat();
    let mut named = BTreeSet::new();
    for file in files(&root().join("deploy")) {
        let text = fs::read_to_string(&file).unwrap();
        for (at, _) in text.match_indices("FAREGATE_") {
            let rest = &text[at..];
            let end = rest.find(|c: char| !(c.is_ascii_uppercase() || c == '_')).unwrap_or(rest.len());
            let name = &rest[..end];
            let is_of_containers = OF_CONTAINERS.iter().any(|variable| name.starts_with(variable));
            // `--help` does not show the values of secrets.
            let is_known = ["=", "]"].iter().any(|end| help.contains(&format!("[env: {name}{end}")));
            assert!(is_of_containers || is_known, "{}: no program has {name}", file.display());
            named.insert(name.to_owned());
        }
    }
    assert!(named.len() > 15, "{named:?}");
}

#[test]
fn the_chart_is_sound_and_kubernetes_accepts_what_it_makes() {
    helm(&["lint", "--strict", "deploy/helm/faregate"]);
    let folder = tempfile::TempDir::new().unwrap();
    for (name, values) in
        [("plain", &[][..]), ("everything", &EVERYTHING[..]), ("one-process", &[ONE_PROCESS][..])]
    {
        let manifests = folder.path().join(name).with_extension("yaml");
        fs::write(&manifests, template(values)).unwrap();
        for version in KUBERNETES {
            let mut validate = Command::new(tests_folder().join(".venv/bin/kubernetes-validate"));
            validate.args(["--strict", "--kubernetes-version", version]).arg(&manifests);
            let output = validate.output().unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success(), "{said}");
            assert!(said.contains("INFO") && !said.contains("WARN") && !said.contains("ERROR"), "{said}");
        }
    }
}

#[test]
fn the_chart_has_the_version_of_the_programs_and_gives_them_time_to_end() {
    let chart: Value = serde_saphyr::from_str(&read("deploy/helm/faregate/Chart.yaml")).unwrap();
    for version in ["version", "appVersion"] {
        assert_eq!(chart[version], env!("CARGO_PKG_VERSION"));
    }
    let manifests = manifests(&EVERYTHING);
    for (name, pause, drain) in [("inference-gateway", 10, 60), ("key-service", 5, 10)] {
        let set = manifest(&manifests, "StatefulSet", &format!("prod-{name}"));
        let pod = &set["spec"]["template"]["spec"];
        let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
        assert!(grace > pause + drain, "{name}: {grace}");
        let container = &pod["containers"][0];
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true, "{name}");
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
        let ports: BTreeSet<_> = container["ports"]
            .as_array()
            .unwrap()
            .iter()
            .map(|port| &port["name"])
            .map(Value::to_string)
            .collect();
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            assert!(ports.contains(&container[probe]["httpGet"]["port"].to_string()), "{name}: {probe}");
        }
        manifest(&manifests, "PodDisruptionBudget", &format!("prod-{name}"));
        manifest(&manifests, "NetworkPolicy", &format!("prod-{name}"));
    }
}

#[test]
fn gateways_of_the_chart_know_every_key_service_by_its_name() {
    let manifests = manifests(&["keyService.replicas=3"]);
    let key_services = manifest(&manifests, "StatefulSet", "prod-key-service");
    let service = key_services["spec"]["serviceName"].as_str().unwrap();
    manifest(&manifests, "Service", service);
    let gateways = manifest(&manifests, "StatefulSet", "prod-inference-gateway");
    let env = gateways["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().clone();
    for (variable, port) in [("FAREGATE_KEY_SERVICE_URL", 50051), ("FAREGATE_KEY_SERVICE_HTTP_URL", 8081)] {
        let set = env.iter().find(|it| it["name"] == variable).unwrap();
        let expected: Vec<_> =
            (0..3).map(|n| format!("http://prod-key-service-{n}.{service}.models.svc:{port}")).collect();
        assert_eq!(set["value"], expected.join(","));
    }
}

#[test]
fn one_process_has_all_secrets_and_stands_in_for_both_services() {
    let manifests = manifests(&[ONE_PROCESS, "publicUrl=https://models.example.com"]);
    let sets: Vec<_> = manifests.iter().filter(|it| it["kind"] == "StatefulSet").collect();
    let [set] = sets[..] else { panic!("one set of pods: {sets:?}") };
    let pod = &set["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let image = container["image"].as_str().unwrap();
    assert!(image.ends_with(concat!("faregate:", env!("CARGO_PKG_VERSION"))), "{image}");
    let set: BTreeSet<_> =
        container["env"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    let help = help("faregate");
    assert!(set.iter().all(|name| help.contains(&format!("[env: {name}"))), "{set:?}");
    for name in ["FAREGATE_STORE_FILE", "FAREGATE_PEPPER_FILE", "FAREGATE_PUBLIC_URL"] {
        assert!(set.contains(name), "{name}");
    }
    let volumes = pod["volumes"].as_array().unwrap();
    let secrets = volumes.iter().find(|it| it["name"] == "secrets").unwrap();
    assert_eq!(secrets["secret"].get("items"), None, "the process needs the pepper and the store");
    manifest(&manifests, "NetworkPolicy", "prod-faregate");

    let one = compose("deploy/compose/one-process.yml");
    let installation = compose("docker-compose.yml");
    let faregate = &one["services"]["faregate"];
    for hardening in ["user", "read_only", "cap_drop", "security_opt", "pids_limit", "restart"] {
        assert_eq!(
            faregate[hardening], installation["services"]["inference-gateway"][hardening],
            "{hardening}"
        );
    }
    for service in ["inference-gateway", "key-service", "local-model"] {
        assert_eq!(
            one["services"][service]["profiles"],
            serde_json::json!(["services"]),
            "{service} does not start"
        );
    }
    for setting in faregate["environment"].as_object().unwrap().keys() {
        assert!(help.contains(&format!("[env: {setting}")), "{setting}");
    }
    let stage = format!(" AS {}\n", faregate["build"]["target"].as_str().unwrap());
    assert!(read("Dockerfile").contains(&stage));
}

#[test]
fn the_examples_of_compose_lie_over_the_installation_and_mount_files_that_are_there() {
    let installation = compose("docker-compose.yml");
    let examples: Vec<_> = files(&root().join("deploy/compose"))
        .into_iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "yml"))
        .filter(|file| !file.ends_with("prometheus.yml"))
        .collect();
    assert_eq!(examples.len(), 5, "{examples:?}");
    for file in examples {
        let name = file.strip_prefix(root()).unwrap().to_str().unwrap();
        let text = read(name);
        let command = format!("docker compose -f docker-compose.yml -f {name} up --wait");
        assert!(text.contains(&command), "{name} says how to use it");
        let example = compose(name);
        for (service, settings) in example["services"].as_object().unwrap() {
            let is_further = installation["services"].get(service).is_none();
            let has_image = ["image", "build", "extends"].iter().any(|way| settings.get(way).is_some());
            assert!(!is_further || has_image, "{name}: {service} has no image");
            let networks = settings["networks"].as_array().into_iter().flatten();
            for network in networks {
                assert!(
                    installation["networks"].get(network.as_str().unwrap()).is_some(),
                    "{name}: {network}"
                );
            }
            for volume in settings["volumes"].as_array().into_iter().flatten() {
                let volume = volume.as_str().unwrap();
                let source = volume.split(':').next().unwrap();
                let is_there = if let Some(path) = source.strip_prefix("./") {
                    root().join(path).exists()
                } else {
                    let named = [&example, &installation].map(|file| file["volumes"].get(source).is_some());
                    source.starts_with('/') || named.contains(&true)
                };
                assert!(is_there, "{name}: {volume}");
            }
        }
    }
}

#[test]
fn two_of_each_know_every_key_service_by_a_name_that_outlives_its_container() {
    let example = compose("deploy/compose/two-of-each.yml");
    let services = example["services"].as_object().unwrap();
    let of = |program: &str| {
        let mut names: Vec<_> = services.keys().filter(|name| name.starts_with(program)).cloned().collect();
        names.extend((!names.iter().any(|name| name == program)).then(|| program.to_owned()));
        names.sort();
        names
    };
    let key_services = of("key-service");
    assert_eq!(key_services, ["key-service", "key-service-b"]);
    let balancer = read("deploy/compose/haproxy.cfg");
    assert!(balancer.contains("httpchk GET /health") && balancer.contains("inter 1s fall 3"), "{balancer}");
    let gateways = of("inference-gateway");
    assert_eq!(gateways.len(), 2);
    for gateway in gateways {
        let environment = &services[&gateway]["environment"];
        for (variable, port) in [("FAREGATE_KEY_SERVICE_URL", 50051), ("FAREGATE_KEY_SERVICE_HTTP_URL", 8081)]
        {
            let named: Vec<_> = key_services.iter().map(|name| format!("http://{name}:{port}")).collect();
            assert_eq!(environment[variable], named.join(","), "{gateway}");
        }
        let pause: u64 = environment["FAREGATE_DRAIN_PAUSE_SECONDS"].as_str().unwrap().parse().unwrap();
        assert!(pause > 3, "three checks of the load balancer notice the pause");
        assert!(balancer.lines().any(|line| line.ends_with(&format!(" {gateway}:8080"))), "{gateway}");
    }
}

#[test]
fn every_container_of_compose_has_a_bound_for_its_logs() {
    let installation = compose("docker-compose.yml");
    let bounded = &installation["x-hardened"]["logging"];
    let files = ["docker-compose.yml", "deploy/compose/one-process.yml", "deploy/compose/two-of-each.yml"];
    for file in files.into_iter().chain(["deploy/compose/monitoring.yml", "deploy/compose/vllm.yml"]) {
        for (service, settings) in compose(file)["services"].as_object().unwrap() {
            // Services that name no image have the image of the installation, or that of the service that they extend.
            let has_image = settings["image"].is_string();
            assert!(!has_image || settings["logging"] == *bounded, "{file}: {service}");
        }
    }
    assert!(bounded["options"]["max-size"].is_string() && bounded["options"]["max-file"].is_string());
}

#[test]
fn every_setting_of_help_stands_in_the_page_of_settings_with_the_programs_that_have_it() {
    let mut there: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (program, letter) in PROGRAMS.into_iter().zip(["f", "g", "k", "m"]) {
        let help = help(program);
        for named in help.split("[env: ").skip(1) {
            let name = named.split(['=', ']']).next().unwrap();
            there.entry(name.to_owned()).or_default().push(letter);
        }
    }
    let page = read("docs/settings.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
    let told: BTreeMap<String, Vec<&str>> = rows
        .map(|row| {
            let cells: Vec<_> = row.split(" | ").collect();
            assert!(cells.len() >= 3 && !cells[cells.len() - 1].is_empty(), "{row}");
            (cells[0].trim_end_matches('`').to_owned(), cells[1].split(' ').collect())
        })
        .collect();
    assert_eq!(told, there);
}

#[test]
fn images_that_others_make_are_pinned_by_digest() {
    let files = files(&root().join("deploy/compose")).into_iter().chain([root().join("docker-compose.yml")]);
    let mut pinned = 0;
    for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "yml")) {
        let text = fs::read_to_string(&file).unwrap();
        for image in text.lines().filter_map(|line| line.trim().strip_prefix("image: ")) {
            let image = image.trim_end_matches('}');
            if image.contains("FAREGATE_REGISTRY") {
                continue;
            }
            let digest = image.split_once("@sha256:").map_or("", |(_, digest)| digest);
            let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(is_digest, "{}: {image}", file.display());
            pinned += 1;
        }
    }
    assert!(pinned >= 4, "{pinned}");
}

#[test]
fn prometheus_of_compose_finds_every_admin_port() {
    let scraped = read("deploy/compose/prometheus.yml");
    for (file, service, port) in [
        ("docker-compose.yml", "inference-gateway", "9090"),
        ("docker-compose.yml", "key-service", "9091"),
        ("deploy/compose/one-process.yml", "faregate", "9090"),
    ] {
        let listen = &compose(file)["services"][service]["environment"]["FAREGATE_ADMIN_LISTEN"];
        assert_eq!(listen, &format!("0.0.0.0:{port}"), "{service}");
        let named = &compose(file)["services"][service]["environment"]["FAREGATE_ADMIN_HOSTS"];
        assert_eq!(named, service, "containers reach it by its name");
        let found =
            scraped.lines().any(|line| line.contains(service) && line.contains(&format!("port: {port}")));
        assert!(found, "{service} is not scraped at {port}");
    }
}

#[test]
fn values_that_the_chart_does_not_know_are_refused() {
    for value in ["gateway.replcas=3", "gateway.replicas=many", "oneProcess=perhaps", "keyService.replicas=0"]
    {
        let mut helm = Command::new(tests_folder().join(".tools/helm"));
        helm.args(["template", "prod", "deploy/helm/faregate", "--set", value]).current_dir(root());
        let output = helm.output().unwrap();
        let (name, _) = value.split_once('=').unwrap();
        let faults = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{value} is taken");
        assert!(faults.contains(name.split('.').next_back().unwrap()), "{value}: {faults}");
    }
}

#[test]
fn a_key_service_of_the_chart_remembers_its_redis_and_reaches_what_it_is_told_to() {
    let telemetry = "networkPolicy.egress[0].ports[0].port=4318";
    let rules =
        ["prometheusRule.enabled=true", "prometheusRule.runbookUrl=https://wiki.example.com/faregate"];
    let made = manifests(&[telemetry, rules[0], rules[1]]);
    let set = manifest(&made, "StatefulSet", "prod-key-service");
    assert_eq!(set["spec"]["volumeClaimTemplates"][0]["metadata"]["name"], "data");
    let volumes = set["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
    assert!(volumes.iter().all(|volume| volume["name"] != "data"), "a pod takes nothing with it");
    let policy = manifest(&made, "NetworkPolicy", "prod-key-service");
    let egress = policy["spec"]["egress"].as_array().unwrap();
    assert!(egress.iter().any(|rule| rule["ports"][0]["port"] == 4318), "{egress:?}");
    let rule = manifest(&made, "PrometheusRule", "prod").to_string();
    assert!(rule.contains("https://wiki.example.com/faregate#storeunreachable"), "{rule}");
    assert!(!rule.contains(crate::operation::metrics::runbook_url()));
}

#[test]
fn units_are_started_again_for_as_long_as_it_takes() {
    for unit in ["faregate.service", "faregate-gateway@.service", "faregate-key-service@.service"] {
        let text = read(&format!("deploy/systemd/{unit}"));
        for line in ["StartLimitIntervalSec=0", "Restart=on-failure", "RestartSec=2"] {
            assert!(text.lines().any(|it| it == line), "{unit}: {line}");
        }
    }
}

#[test]
fn systemd_knows_every_line_of_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("systemd is not installed here: nothing reads the units");
        return;
    }
    let folder = tempfile::TempDir::new().unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.arg("verify");
    for entry in fs::read_dir(root().join("deploy/systemd")).unwrap() {
        let from = entry.unwrap().path();
        let to = folder.path().join(from.file_name().unwrap());
        // Our program may not be installed, so it is replaced by a program that every machine has.
        let text = fs::read_to_string(&from).unwrap().replace("/usr/local/bin/", "/bin/true /");
        fs::write(&to, text).unwrap();
        verify.arg(to);
    }
    let output = verify.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn catalogues_under_deploy_are_accepted() {
    let values: Value = serde_saphyr::from_str(&read("deploy/helm/faregate/values.yaml")).unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    let of_chart = folder.path().join("models.toml");
    fs::write(&of_chart, values["models"].as_str().unwrap()).unwrap();
    for catalogue in [of_chart, root().join("deploy/compose/vllm.toml")] {
        let env = vec![("FAREGATE_MODELS", catalogue.display().to_string())];
        let settings = Settings::of("key-service", folder.path(), env);
        settings.cli(&["catalogue", "check"]);
    }
}

/// Returns the manifests that the chart makes, as YAML.
fn template(values: &[&str]) -> String {
    let mut arguments = vec!["template", "prod", "deploy/helm/faregate", "--namespace", "models"];
    arguments.extend(values.iter().flat_map(|value| ["--set", value]));
    helm(&arguments)
}

fn manifests(values: &[&str]) -> Vec<Value> {
    let parts = template(values);
    let parts = parts.split("\n---\n").map(|part| part.trim_start_matches("---\n"));
    parts.map(|part| serde_saphyr::from_str(part).unwrap()).collect()
}

fn manifest<'a>(manifests: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found = manifests.iter().find(|it| it["kind"] == kind && it["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// Runs `helm` at the root of the workspace, and returns its output.
fn helm(arguments: &[&str]) -> String {
    let helm = tests_folder().join(".tools/helm");
    let output = Command::new(helm).args(arguments).current_dir(root()).output().unwrap();
    let (said, faults) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "helm {arguments:?}: {said}{faults}");
    said
}

fn compose(name: &str) -> Value {
    // In Compose, `!reset` marks a value that an overlay removes.
    let parsed: BTreeMap<String, Value> = serde_saphyr::from_str(&read(name).replace("!reset ", "")).unwrap();
    parsed.into_iter().collect::<serde_json::Map<_, _>>().into()
}

/// Returns all files in a folder and below it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn tests_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

fn help(program: &'static str) -> String {
    let folder = tempfile::TempDir::new().unwrap();
    Settings::of(program, folder.path(), Vec::new()).cli(&["--help"])
}
