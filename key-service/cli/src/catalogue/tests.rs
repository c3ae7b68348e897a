//! Tests the commands with lists in the formats of models.dev and LiteLLM. The models are invented.

use std::fs;

use clap::Parser;
use shared_catalog::{LeftMidStream, Price, Rates, Tier};
use tempfile::TempDir;

use super::*;

/// Stands for the command line of a program with these commands.
#[derive(Debug, Parser)]
struct Binary {
    #[command(flatten)]
    common: Common,

    #[command(subcommand)]
    command: Catalogue,
}

/// A folder of lists and catalogues.
struct Folder(TempDir);

impl Folder {
    fn with(files: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().unwrap();
        for (name, text) in files {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        Self(folder)
    }

    /// Runs a command line, and returns its output and its error. A word that begins with `./` is a file in the folder.
    fn say(&self, line: &str) -> (String, Option<String>) {
        let word = |word: &str| match word.strip_prefix("./") {
            Some(name) => self.0.path().join(name).display().to_string(),
            None => word.to_owned(),
        };
        let words = ["faregate".to_owned()].into_iter().chain(line.split(' ').map(word));
        let parsed = match Binary::try_parse_from(words) {
            Ok(parsed) => parsed,
            Err(e) => return (String::new(), Some(e.to_string())),
        };
        let mut out = Vec::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let done = runtime.block_on(catalogue(&parsed.command, &parsed.common, &mut out));
        (String::from_utf8(out).unwrap(), done.err().map(|e| format!("{e:#}")))
    }
}

fn usd(text: &str) -> NanoUsd {
    NanoUsd::parse(text).unwrap()
}

fn rates(text: &str) -> Rates {
    Rates::of_array(text.split(' ').map(usd).collect::<Vec<_>>().try_into().unwrap())
}

const SERVICE: &str = "[service]\nname = \"f\"\nprovider = \"f\"\ndocs = \"f\"\n";

/// Completes an entry as a person would, and returns its model.
fn completed(entry: &str) -> Model {
    let text = format!("{SERVICE}{entry}").replace("url = \"\"", "url = \"https://api.example.com/v1\"");
    Catalog::parse(&text, "entry").unwrap().models.remove(0)
}

const LARK: &str = r#"# A comment, as the lists have them.
name = "Lark 2"
family = "lark"
release_date = "2026-02-01"
last_updated = "2026-02-01"
attachment = true
reasoning = true
tool_call = true
open_weights = false
reasoning_options = [{ type = "effort", values = ["low", "high"] }]

[cost]
input = 3
output = 15.00
cache_read = 0.30
cache_write = 3.75
input_audio = 1_0.5

[[cost.tiers]]
tier = { type = "context", size = 200_000 }
input = 6.00
output = 22.50
cache_read = 0.6

[experimental.modes.fast]
cost = { input = 6, output = 30 }

[limit]
context = 1_000_000
output = 64_000

[modalities]
input = ["text", "image"]
output = ["text"]
"#;

#[test]
fn a_file_of_models_dev_becomes_an_entry() {
    let folder = Folder::with(&[("providers/aviary/models/lark-2.toml", LARK)]);
    let from = "import --from ./providers/aviary/models/lark-2.toml --format models.dev --model lark-2";
    let (entry, none) = folder.say(from);
    assert_eq!(none, None);
    let model = completed(&entry);
    assert_eq!((model.id.as_str(), model.owned_by.as_str()), ("lark-2", "aviary"));
    assert_eq!((model.context_window, model.max_output_tokens), (1_000_000, 64_000));
    let base = rates("3 0.3 15 3.75 3.75 15 10.5 15 0 0");
    let tier = Tier { above: 200_000, rates: rates("6 0.6 22.5 3.75 3.75 22.5 10.5 22.5 0 0") };
    assert_eq!(*model.price, Price { base, tiers: vec![tier] });
    assert_eq!(model.upstreams[0].cost, None);
    assert!(entry.contains("# cache_write_long: no price is listed"), "{entry}");

    let (entry, none) = folder.say(&format!("{from} --markup 1.25"));
    assert_eq!(none, None);
    let model = completed(&entry);
    assert_eq!(model.upstreams[0].cost, Some(Price { base, tiers: vec![tier] }));
    assert_eq!(model.price.base, rates("3.75 0.375 18.75 4.6875 4.6875 18.75 13.125 18.75 0 0"));
    assert_eq!(model.price.tiers[0].rates.cached_input, usd("0.75"));

    for (line, expected) in [
        (from.replace("--model lark-2", "--model lark"), "--model lark: the list does not have this model"),
        (from.replace(" --model lark-2", ""), "--model"),
        (format!("{from} --markup 0.99"), "must be a number of at least 1"),
        (from.replace("models.dev", "litellm"), "--from"),
        (from.replace("lark-2.toml", "wren.toml"), "--from"),
    ] {
        let (out, error) = folder.say(&line);
        assert!(out.is_empty() && error.as_ref().is_some_and(|e| e.contains(expected)), "{line}: {error:?}");
    }
}

#[test]
fn a_file_of_models_dev_may_leave_prices_and_sizes_out() {
    let older = "[cost]\ninput = 1\noutput = 2\nweekend = 3\ncontext_over_200k = { input = 4 }\n";
    let folder = Folder::with(&[("wren.toml", older), ("free.toml", "name = \"Free\"\n")]);
    let (entry, none) = folder.say("import --from ./wren.toml --format models.dev --model wren");
    assert_eq!(none, None);
    assert!(entry.contains("# context_window = …  # required"), "{entry}");
    assert!(entry.contains("# not imported, since the catalogue has no field for it: weekend"), "{entry}");
    let entry = entry
        .replace("# context_window = …", "context_window = 9")
        .replace("# max_output_tokens = …", "max_output_tokens = 9");
    // Tokens from a cache cost as much as other input, in each tier.
    let model = completed(&entry);
    assert_eq!(model.price.base, rates("1 1 2 1 1 2 1 2 0 0"));
    assert_eq!(model.price.tiers, [Tier { above: 200_000, rates: rates("4 4 2 4 4 2 4 2 0 0") }]);
    let (_, error) = folder.say("import --from ./free.toml --format models.dev --model free");
    assert_eq!(error.unwrap(), "--model free: it has no [cost]");
}

const LITELLM: &str = r#"{
    "sample_spec": {"input_cost_per_token": 0.0, "mode": "one of: chat, embedding", "max_tokens": "a text"},
    "aviary/lark-2": {
        "cache_creation_input_token_cost": 3.75e-06,
        "cache_creation_input_token_cost_above_1hr": 6e-06,
        "cache_creation_input_token_cost_above_1hr_above_200k_tokens": 1.2e-05,
        "cache_creation_input_token_cost_above_200k_tokens": 7.5e-06,
        "cache_read_input_token_cost": 3e-07,
        "cache_read_input_token_cost_above_200k_tokens": 6e-07,
        "input_cost_per_image": 0.00132,
        "input_cost_per_request": 0.005,
        "input_cost_per_token": 3e-06,
        "input_cost_per_token_above_200k_tokens": 6e-06,
        "input_cost_per_token_batches": 1.5e-06,
        "input_cost_per_video_per_second": 0.0,
        "litellm_provider": "aviary",
        "max_input_tokens": 200000,
        "max_output_tokens": 64000,
        "mode": "chat",
        "output_cost_per_token": 1.5e-05,
        "output_cost_per_token_above_200k_tokens": 2.25e-05,
        "search_context_cost_per_query": {"search_context_size_low": 0.01},
        "supports_vision": true
    },
    "wren-embed": {
        "input_cost_per_token": 5.46875e-09,
        "litellm_provider": "aviary",
        "max_input_tokens": 8191,
        "mode": "embedding"
    },
    "painter": {"litellm_provider": "aviary", "mode": "image_generation", "output_cost_per_image": 0.04}
}"#;

#[test]
fn models_of_litellms_list_become_entries() {
    let folder = Folder::with(&[("prices.json", LITELLM)]);
    let from = "import --from ./prices.json --format litellm --model";
    let (entries, none) = folder.say(&format!("{from} aviary/lark-2 wren-embed"));
    assert_eq!(none, None);
    let (lark, wren) = entries.split_at(entries.rfind("[[model]]").unwrap());
    let model = completed(lark);
    assert_eq!((model.owned_by.as_str(), model.context_window), ("aviary", 200_000));
    assert_eq!(model.price.base, rates("3 0.3 15 3.75 6 15 3 15 0.00132 0.005"));
    let tier = rates("6 0.6 22.5 7.5 12 22.5 6 22.5 0.00132 0.005");
    assert_eq!(model.price.tiers, [Tier { above: 200_000, rates: tier }]);
    let left_out = "# not imported, since the catalogue has no field for it: input_cost_per_token_batches, search_context_cost_per_query\n";
    assert!(lark.contains(left_out), "{lark}");
    let model = completed(wren);
    assert!(model.serves.embeddings && !model.serves.chat);
    assert_eq!(model.price.base, rates("0.00546875 0.00546875 0 0.00546875 0.00546875 0 0.00546875 0 0 0"));
    // If one model is missing or has no price per token, no model is printed.
    for (id, expected) in [("lark", "does not have this model"), ("painter", "it has no price per token")] {
        let (out, error) = folder.say(&format!("{from} aviary/lark-2 {id}"));
        assert!(out.is_empty() && error.unwrap().contains(expected), "{id}");
    }
}

#[test]
fn a_model_whose_rates_are_in_tiers_alone_has_them_and_a_list_may_begin_with_a_mark() {
    let list = r#"{"aviary/rook": {"litellm_provider": "aviary", "mode": "chat", "max_input_tokens": 1000000,
        "max_output_tokens": 64000, "tiered_pricing": [
            {"input_cost_per_token": 4e-07, "output_cost_per_token": 1.2e-06, "range": [0, 256000.0]},
            {"input_cost_per_token": 1.2e-06, "cache_read_input_token_cost": 2.4e-07, "output_cost_per_token": 3.6e-06,
             "range": [256000.0, 1000000.0]}]}}"#;
    let folder = Folder::with(&[("prices.json", &format!("\u{feff}{list}"))]);
    let (entry, none) = folder.say("import --from ./prices.json --format litellm --model aviary/rook");
    assert_eq!(none, None);
    let price = completed(&entry).price;
    assert_eq!(price.base, rates("0.4 0.4 1.2 0.4 0.4 1.2 0.4 1.2 0 0"));
    let tier = rates("1.2 0.24 3.6 1.2 1.2 3.6 1.2 3.6 0 0");
    assert_eq!(price.tiers, [Tier { above: 256_000, rates: tier }]);
    assert!(!entry.contains("not imported"), "{entry}");
}

/// Returns a catalogue with one model on one upstream of this kind. `price` and `upstream` are further lines of the
/// model's price table and of the upstream's table.
fn offered(kind: &str, price: &str, upstream: &str) -> String {
    format!(
        "{SERVICE}[[model]]\nid = \"Lark\"\nowned_by = \"f\"\ncontext_window = 9\nmax_output_tokens = 9\n{price}\n\
         [[model.upstream]]\nkind = \"{kind}\"\nurl = \"https://api.example.com/v1\"\nmodel = \"aviary/lark-2\"\n{upstream}\n"
    )
}

const PRICE: &str = "[model.price]\ninput = \"3\"\ncached_input = \"0.3\"\noutput = \"15\"";

#[test]
fn a_check_says_which_models_may_lose_money() {
    let hides =
        "model \"Lark\", upstream \"aviary/lark-2\": hidden tokens, such as reasoning, are not billed";
    let sound = "The catalogue has no fault (models: 1).\n";
    let check = |text: &str| Folder::with(&[("models.toml", text)]).say("--models ./models.toml check");
    let (out, none) = check(&offered("openai", PRICE, ""));
    assert!(out.starts_with(hides) && out.ends_with(sound) && none.is_none(), "{out}");
    assert!(check(&offered("ollama", PRICE, "")).0.starts_with(hides));
    for (kind, lines) in
        [("vllm", ""), ("openai", "left_mid_stream = \"finish\""), ("openai", "streams_every_token = true")]
    {
        assert_eq!(check(&offered(kind, PRICE, lines)), (sound.to_owned(), None));
    }
    let cost = format!("{}\ncache_write = \"3.75\"", PRICE.replace("model.price", "model.upstream.cost"));
    let (out, none) = check(&offered("vllm", &format!("sell_below_cost = true\n{PRICE}"), &cost));
    assert_eq!(none, None);
    assert!(out.contains("`cache_write` sells for 3 and costs 3.75."), "{out}");
    // The check refuses what the services refuse at their start.
    let (out, error) = check(&offered("vllm", PRICE, &cost));
    assert!(out.is_empty(), "{out}");
    assert!(
        error.unwrap().contains("models.toml:10: model \"Lark\" sells `cache_write` for 3, but pays 3.75")
    );
}

#[test]
fn a_check_against_a_list_says_what_has_changed() {
    let check = |text: &str| {
        let files =
            [("models.toml", text), ("prices.json", LITELLM), ("lark.toml", LARK), ("prices.csv", "")];
        let folder = Folder::with(&files);
        move |list: &str| folder.say(&format!("--models ./models.toml check --against ./{list}"))
    };
    let cost = |rates: &str| {
        let of =
            |table: &str| format!("[model.{table}]\n{rates}").replace(".above", &format!(".{table}.above"));
        check(&offered("vllm", &of("price"), &of("upstream.cost")))
    };
    let same = "input = \"3\"\ncached_input = \"0.3\"\noutput = \"15\"\ncache_write = \"3.75\"\ncache_write_long = \"6\"\n\
                image = \"0.00132\"\nrequest = \"0.005\"\n[[model.above]]\nprompt_tokens = 200000\ninput = \"6\"\n\
                cached_input = \"0.6\"\noutput = \"22.5\"\ncache_write = \"7.5\"\ncache_write_long = \"12\"";
    assert_eq!(cost(same)("prices.json").1, None);
    let changed = same.replace("\"15\"", "\"14\"").replace("\"12\"", "\"11\"");
    let (out, error) = cost(&changed)("prices.json");
    let line = |what: &str| format!("model \"Lark\", upstream \"aviary/lark-2\": {what}\n");
    assert!(out.contains(&line("`output` costs 14 here and 15 in the list.")), "{out}");
    assert!(
        out.contains(&line(
            "`cache_write_long` above 200000 prompt tokens costs 11 here and 12 in the list."
        )),
        "{out}"
    );
    assert!(error.unwrap().ends_with("(differences: 2)"));
    // Without a known cost, the check lists only prices below the list's prices. Higher prices are up to the operator.
    let (out, error) = check(&offered("vllm", PRICE, ""))("prices.json");
    assert!(out.contains(&line("`cache_write` sells for 3 and costs 3.75 in the list.")), "{out}");
    assert!(error.unwrap().contains("the catalogue differs from"));
    let dear = PRICE.replace("\"0.3\"", "\"100\"").replace("\"3\"", "\"100\"").replace("\"15\"", "\"100\"");
    let dear = format!("{dear}\nimage = \"1\"\nrequest = \"1\"");
    assert_eq!(check(&offered("vllm", &dear, ""))("prices.json").1, None);
    // The list has neither the upstream's name of the model nor its id, so there is nothing to compare.
    let (out, error) = check(&offered("vllm", PRICE, ""))("lark.toml");
    assert!(out.contains(&line("not in the list.")) && error.is_none(), "{out}");
    let renamed = offered("vllm", PRICE, "").replace("\"Lark\"", "\"lark\"");
    let (out, error) = check(&renamed)("lark.toml");
    assert!(
        out.contains("`audio_input` sells for 3 and costs 10.5 in the list.") && error.is_some(),
        "{out}"
    );
    let (_, error) = check(&renamed)("prices.csv");
    assert!(error.unwrap().contains("ends neither in .toml nor in .json"));
}

/// Models of vendors that have a preset, as both lists name them.
const VENDORS: &str = r#"{
    "gpt-x": {"litellm_provider": "openai", "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06,
        "max_input_tokens": 400000, "max_output_tokens": 128000, "mode": "chat"},
    "groq/aviary/lark": {"litellm_provider": "groq", "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06,
        "max_input_tokens": 131072, "max_output_tokens": 8192, "mode": "chat"},
    "azure/gpt-x": {"litellm_provider": "azure", "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06,
        "max_input_tokens": 400000, "max_output_tokens": 128000, "mode": "chat"}
}"#;

#[test]
fn a_model_of_a_known_vendor_comes_with_all_that_its_first_call_needs() {
    let folder = Folder::with(&[
        ("prices.json", VENDORS),
        (
            "providers/anthropic/models/claude-x.toml",
            "[cost]\ninput = 1\noutput = 2\n[limit]\ncontext = 9\noutput = 9\n",
        ),
    ]);
    let read = |entry: String| {
        assert!(!entry.contains("must not stay empty"), "{entry}");
        let model = Catalog::parse(&format!("{SERVICE}{entry}"), "entry").unwrap().models.remove(0);
        let upstream = &model.upstreams[0];
        let address = upstream.url.as_ref().unwrap().to_string();
        let key = upstream.access.headers[0].source.to_string();
        let speaks = upstream.speaks.iter().map(|api| api.as_str()).collect::<Vec<_>>();
        assert_eq!(upstream.left_mid_stream, LeftMidStream::Finish);
        assert_eq!(upstream.left_before_head, shared_catalog::LeftBeforeHead::Prompt);
        assert_eq!(model.efforts.len(), 7);
        (address, upstream.model.clone(), key.rsplit(' ').next().unwrap().to_owned(), speaks)
    };
    let from = "import --from ./prices.json --format litellm --model";
    let (entry, none) = folder.say(&format!("{from} gpt-x"));
    assert_eq!(none, None);
    let expected =
        ("https://api.openai.com/v1".into(), "gpt-x".into(), "OPENAI_API_KEY".into(), vec!["responses"]);
    assert_eq!(read(entry), expected);
    // The vendor's prefix in the list is removed. A prefix that belongs to the vendor's own name for the model stays.
    let entry = folder.say(&format!("{from} groq/aviary/lark")).0;
    assert!(
        entry.contains("id = \"groq/aviary/lark\"") && entry.contains("max_completion_tokens"),
        "{entry}"
    );
    let expected =
        ("https://api.groq.com/openai/v1".into(), "aviary/lark".into(), "GROQ_API_KEY".into(), vec!["chat"]);
    assert_eq!(read(entry), expected);
    let entry = folder.say(&format!("{from} azure/gpt-x")).0;
    assert!(entry.contains("# replace RESOURCE with your own value"), "{entry}");
    assert_eq!(read(entry).1, "gpt-x");
    let from =
        "import --from ./providers/anthropic/models/claude-x.toml --format models.dev --model claude-x";
    let (address, _, key, speaks) = read(folder.say(&format!("{from} --markup 2")).0);
    assert_eq!(
        (address.as_str(), key.as_str(), speaks),
        ("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY", vec!["messages"])
    );
}

#[test]
fn every_vendor_comes_with_its_address_its_key_and_its_api_under_each_of_its_names_in_lists() {
    for preset in Preset::all().unwrap() {
        for owner in &preset.listed_as {
            let list = format!(
                r#"{{"m": {{"litellm_provider": "{owner}", "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06,
                    "max_input_tokens": 400000, "max_output_tokens": 128000, "mode": "chat"}}}}"#
            );
            let folder = Folder::with(&[("prices.json", &list)]);
            let (entry, fault) = folder.say("import --from ./prices.json --format litellm --model m");
            assert_eq!(fault, None, "{owner}");
            for (field, value) in preset.upstream_fields() {
                assert!(
                    entry.contains(&format!("\n{field} = {value}")),
                    "{owner}: {field} = {value}: {entry}"
                );
            }
            let efforts = preset.efforts_field().unwrap();
            assert!(entry.contains(&format!("efforts = {efforts}")), "{owner}: {entry}");
        }
    }
}

#[test]
fn a_vendor_finds_its_own_price_and_none_of_another_vendor() {
    let folder = Folder::with(&[("prices.json", VENDORS), ("lark-2.toml", LARK)]);
    let presets = Preset::all().unwrap();
    let find = |file: &str, vendor: &str, name: &str| {
        let list = PriceList::open(&folder.0.path().join(file)).unwrap();
        let preset = presets.iter().find(|preset| preset.name == vendor).unwrap();
        list.model_of(preset, name).unwrap().map(|listed| listed.id)
    };
    assert_eq!(find("prices.json", "openai", "gpt-x").as_deref(), Some("gpt-x"));
    assert_eq!(find("prices.json", "azure", "gpt-x").as_deref(), Some("azure/gpt-x"));
    assert_eq!(find("prices.json", "groq", "aviary/lark").as_deref(), Some("groq/aviary/lark"));
    assert_eq!(find("prices.json", "openrouter", "gpt-x"), None);
    // For a model on a local server, any vendor's price is found.
    assert_eq!(find("prices.json", "vllm", "gpt-x").as_deref(), Some("gpt-x"));
    assert_eq!(find("lark-2.toml", "openrouter", "aviary/lark-2").as_deref(), Some("lark-2"));
    assert_eq!(find("lark-2.toml", "openrouter", "aviary/lark-3"), None);
}
