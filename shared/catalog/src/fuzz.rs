//! Fuzz targets for catalogues, and for servers' descriptions of themselves.

use std::fmt::Write;

use http::Uri;
use shared_fuzz::{Examples, Input, fuzz};

use crate::{
    Effort, Rates,
    catalog::Catalog,
    server::{ServerDescription, address_below},
    upstream::UpstreamKind,
};

/// In an accepted catalogue, every model has a unique name, at least one upstream, and a price that can be billed.
#[test]
fn catalogues() {
    let examples = [
        include_str!("../../../config/models.toml"),
        include_str!("../../../deploy/compose/vllm.toml"),
        include_str!("../../../tests/tests/e2e/upstreams/natives/own_query.toml"),
        include_str!("../../../tests/tests/e2e/hostile/sizes/all_apis.toml"),
    ];
    let examples = Examples::of(examples).and(Examples::folder("catalogues"));
    fuzz(&examples, |input: &Input| {
        let text = input.text();
        let catalog = match Catalog::parse(&text, "models.toml") {
            Ok(catalog) => catalog,
            Err(error) => return assert!(error.to_string().starts_with("models.toml")),
        };
        for model in &catalog.models {
            assert!(catalog.model(&model.id).is_some_and(|found| found.id == model.id));
            assert!(
                model.aliases.iter().all(|alias| catalog.model(alias).is_some_and(|it| it.id == model.id))
            );
            assert_eq!(model.price.fault(), None);
            assert!(!model.upstreams.is_empty() && model.context_window > 0);
        }
    });
}

/// Rates that are written and read again stay the same.
#[test]
fn rates() {
    fuzz(&Examples::of(["[5,1,9,null,7,null,null,8]", "[0,0,0,1,2,3,4,5,6,7]"]), |input: &Input| {
        if let Ok(rates) = serde_json::from_slice::<Rates>(input.bytes()) {
            let written = serde_json::to_string(&rates).unwrap();
            assert_eq!(serde_json::from_str::<Rates>(&written).unwrap(), rates);
        }
    });
}

/// The names and windows that are read occur in the server's list, and an address below a base keeps its host.
#[test]
fn server_descriptions() {
    let examples = [
        r#"{"object":"list","data":[{"id":"qwen","object":"model","max_model_len":8192,"owned_by":"vllm"},{"id":"models/a:latest"}]}"#,
        r#"[{"id":"c","context_length":9},{"id":"g","context_window":"?"}]"#,
        r#"{"default_generation_settings":{"n_ctx":4096,"params":{}},"total_slots":4}"#,
        "https://a.example:8000/v1/?v=1",
    ];
    fuzz(&Examples::of(examples), |input: &Input| {
        for kind in [UpstreamKind::Openai, UpstreamKind::LlamaCpp] {
            let Some(description) = ServerDescription::read(kind, input.bytes()) else { continue };
            for name in description.names() {
                assert!(description.has(name));
                assert!(description.window_of(name) != Some(0));
            }
        }
        let text = input.text();
        assert!(Effort::read(&text).is_none_or(|effort| effort.word() == text));
        if let Ok(base) = text.parse::<Uri>()
            && let Some(below) = address_below(&base, "/models?limit=1")
        {
            assert_eq!((below.scheme(), below.authority()), (base.scheme(), base.authority()));
            let mut written = String::new();
            write!(written, "{below}").unwrap();
            assert!(written.contains("/models?"));
        }
    });
}
