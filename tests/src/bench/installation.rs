//! A `faregate` to be measured: set up like any other, with a key that cannot run out.

use std::net::SocketAddr;

use http::Method;
use serde_json::json;
use tempfile::TempDir;

use crate::harness::{ACCOUNT, Http, Models, Server, Settings};

/// More than any measurement spends or holds, in USD.
const CREDIT: &str = "100000";

/// A running installation with an API key.
pub(super) struct Installation {
    server: Server,
    /// Where clients reach it.
    pub(super) address: SocketAddr,
    /// The plaintext of the API key.
    pub(super) key: String,
    // Last: the folder goes after the process that writes into it.
    _data: TempDir,
}

impl Installation {
    /// Starts one in front of this upstream.
    pub(super) async fn start(upstream: SocketAddr) -> Self {
        let data = TempDir::new().expect("a temporary folder can be made");
        let models = Models::At(format!("http://{upstream}/v1"));
        let file = data.path().join("models.toml");
        std::fs::write(&file, models.catalogue("openai", "").expect("models at an address are configured"))
            .unwrap();
        let env = vec![("FAREGATE_MODELS", file.display().to_string())];
        let settings = Settings::all_in_one(data.path(), env);
        let server = Server::start(&settings).await;
        settings.cli(&["credits", "add", "--account", ACCOUNT, "--amount", CREDIT]);
        let management_key =
            settings.cli(&["management-keys", "create", "--account", ACCOUNT, "--name", "bench"]);
        let url = format!("{}/v1/management/keys", server.public());
        let made = Http::new()
            .send_as(management_key.trim(), Method::POST, &url, Some(json!({"label": "bench"})))
            .await;
        let key = made.json()["key"].as_str().unwrap_or_else(|| panic!("no key was made: {made}")).to_owned();
        let address = server.public().trim_start_matches("http://").parse().unwrap();
        Self { server, address, key, _data: data }
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.server.pid()
    }
}
