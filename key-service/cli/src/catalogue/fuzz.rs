//! Fuzz target for price lists.

use std::fs;

use shared_catalog::Catalog;
use shared_fuzz::{Examples, Input, fuzz};

use super::*;

/// A completed entry is a valid catalogue with the list's prices.
#[test]
fn price_lists() {
    const SERVICE: &str = "[service]\nname = \"f\"\nprovider = \"f\"\ndocs = \"f\"\n";
    let folder = tempfile::tempdir().unwrap();
    fuzz(&Examples::folder("price-lists"), |input: &Input| {
        for (file, format, ids) in [
            ("list.json", Format::LiteLlm, &["aviary/lark-2", "openai/text-embed", "gpt-x"][..]),
            ("lark-2.toml", Format::ModelsDev, &["lark-2"]),
        ] {
            let file = folder.path().join(file);
            fs::write(&file, input.bytes()).unwrap();
            let Ok(list) = PriceList::read(&file, format) else { continue };
            for id in ids {
                let Ok(Some(listed)) = list.model(id) else { continue };
                assert_eq!(listed.price.fault(), None);
                let entry = CatalogueEntry {
                    listed: &listed,
                    preset: None,
                    upstream_model: &listed.id,
                    markup: None,
                }
                .text();
                let text =
                    format!("{SERVICE}{entry}").replace("url = \"\"", "url = \"https://api.example.com/v1\"");
                match Catalog::parse(&text, "entry") {
                    Ok(catalog) => assert_eq!(*catalog.models[0].price, listed.price, "{text}"),
                    // A person has to see what is missing or wrong in the list.
                    Err(error) => {
                        let error = error.to_string();
                        let blames_sizes = ["context_window", "max_output_tokens", "i64"];
                        assert!(blames_sizes.iter().any(|name| error.contains(name)), "{error}\n{text}");
                    }
                }
            }
        }
    });
}
