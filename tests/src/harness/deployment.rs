//! Which processes make up an installation, and how they find each other.

use std::{fs, path::Path};

use super::{
    ACCOUNT, FIRST_CREDIT,
    redis::{Form, Redis},
    server::{Server, Settings},
};

/// What the services hash keys with, and what they know each other by.
const PEPPER: &str = "5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed";
const INTERNAL_TOKEN: &str = "between-the-services";

/// The variable that has the services run over a cluster.
const REDIS_FORM: &str = "FAREGATE_TEST_REDIS";

/// Which processes make up an installation.
#[derive(Clone, Copy, Debug)]
pub enum Deployment {
    /// `faregate`: both services and the store in one.
    AllInOne,
    /// The services as processes of their own, over a Redis.
    Services {
        /// So many gateways.
        gateways: usize,
        /// So many key-services.
        key_services: usize,
        /// What that Redis is.
        redis: Form,
    },
}

impl Deployment {
    /// So many services of each kind over a Redis: a single one, unless the environment asks for a cluster.
    pub fn services(gateways: usize, key_services: usize) -> Self {
        let redis = match std::env::var(REDIS_FORM).as_deref() {
            Ok("cluster") => Form::Cluster,
            Ok(other) => panic!("{REDIS_FORM} is {other:?}, which is not \"cluster\""),
            Err(_) => Form::Alone,
        };
        Self::Services { gateways, key_services, redis }
    }
}

/// An installation's processes.
pub(crate) struct Processes {
    /// Those that clients speak to.
    pub(crate) gateways: Vec<Server>,
    /// None where the gateway's process is the key-service's as well.
    pub(crate) key_services: Vec<Server>,
    /// None where the store is no process.
    pub(crate) redis: Option<Redis>,
}

impl Deployment {
    /// Starts the processes, with the account of a first run. Each has a folder in `data` and this environment.
    pub(crate) async fn start(self, data: &Path, env: Vec<(&'static str, String)>) -> Processes {
        match self {
            Self::AllInOne => Processes {
                gateways: vec![Server::start(&Settings::all_in_one(data, env)).await],
                key_services: Vec::new(),
                redis: None,
            },
            Self::Services { gateways, key_services, redis } => {
                let redis = Redis::start(redis, &data.join("redis")).await;
                services(data, &env, gateways, key_services, redis).await
            }
        }
    }
}

impl Processes {
    /// Whoever has the store has the commands.
    pub(crate) fn operator(&self) -> &Settings {
        self.key_services.first().unwrap_or(&self.gateways[0]).settings()
    }
}

async fn services(
    data: &Path,
    env: &[(&'static str, String)],
    gateways: usize,
    key_services: usize,
    redis: Redis,
) -> Processes {
    let settings = |program: &'static str, number: usize, own: Vec<(&'static str, String)>| {
        let data = data.join(format!("{program}-{number}"));
        fs::create_dir_all(&data).unwrap();
        let token = ("FAREGATE_INTERNAL_TOKEN", INTERNAL_TOKEN.to_owned());
        let env = env.iter().cloned().chain([token]).chain(own).collect();
        Settings { program, data, env }
    };
    let of_key_service = |number| {
        let pepper = ("FAREGATE_PEPPER", PEPPER.to_owned());
        settings("key-service", number, vec![pepper, ("FAREGATE_STORE", redis.url())])
    };
    of_key_service(0).cli(&["accounts", "create", "--name", ACCOUNT, "--credit", FIRST_CREDIT]);
    let mut behind = Vec::new();
    for number in 0..key_services {
        behind.push(Server::start(&of_key_service(number)).await);
    }
    let mut before = Vec::new();
    for number in 0..gateways {
        // Each starts with another one, so that all of them have something to do.
        let mut in_turn: Vec<&Server> = behind.iter().collect();
        in_turn.rotate_left(number % key_services);
        let grpc: Vec<&str> = in_turn.iter().map(|server| server.address("key-grpc")).collect();
        let http: Vec<&str> = in_turn.iter().map(|server| server.address("key-http")).collect();
        let urls = vec![
            ("FAREGATE_KEY_SERVICE_URL", grpc.join(",")),
            ("FAREGATE_KEY_SERVICE_HTTP_URL", http.join(",")),
        ];
        before.push(Server::start(&settings("inference-gateway", number, urls)).await);
    }
    Processes { gateways: before, key_services: behind, redis: Some(redis) }
}
