//! Model servers: the scripted upstream of the end-to-end tests, over the network.

use std::sync::Arc;

use shared_catalog::Catalog;
use tests::upstream::{Keep, Script, State, serve_connection};

use crate::services::{network::Network, process::Process};

/// Places of the upstreams.
pub(crate) const UPSTREAMS: [&str; 2] = ["upstream-1", "upstream-2"];

/// Starts an upstream at a place.
pub(crate) fn start(place: &str, network: &Arc<Network>) -> Arc<State> {
    let (state, process) = (Arc::new(State::new(Script::default(), Keep::Requests)), Process::new(place));
    let (mut connections, shared, of_process) = (network.listen(place), state.clone(), process.clone());
    process.spawn(async move {
        while let Some(wire) = connections.recv().await {
            of_process.spawn(serve_connection(wire, shared.clone()));
        }
    });
    state
}

/// Models, named after the APIs of their upstreams.
pub(crate) const MODELS: [&str; 3] = ["chat", "responses", "messages"];

/// Returns a catalogue with a model for each API, at both upstreams.
pub(crate) fn catalog() -> Catalog {
    let service =
        "[service]\nname = \"Faregate\"\nprovider = \"Model\"\ndocs = \"https://docs.example.com\"\n";
    let model = |id: &str| {
        let kind = if id == "chat" { "vllm" } else { "openai" };
        let upstream = |place: &str| {
            format!(
                "[[model.upstream]]\nkind = \"{kind}\"\nurl = \"http://{place}/v1\"\nmodel = \"scripted/x\"\nspeaks = [\"{id}\"]\n"
            )
        };
        format!(
            "[[model]]\nid = \"{id}\"\nowned_by = \"model-service\"\ncontext_window = 1048576\nmax_output_tokens = 4096\n\
             [model.price]\ninput = \"0.10\"\ncached_input = \"0.025\"\noutput = \"0.40\"\n{}{}",
            upstream(UPSTREAMS[0]),
            upstream(UPSTREAMS[1])
        )
    };
    Catalog::parse(&format!("{service}{}", MODELS.map(model).concat()), "models.toml").unwrap()
}
