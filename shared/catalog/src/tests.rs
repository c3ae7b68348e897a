//! Catalogues that are accepted, and catalogues that are refused.

use shared::money::NanoUsd;

use crate::*;

const GOOD: &str = r#"
[service]
name = "Faregate"
provider = "Model"
docs = "https://docs.example.com"

[[model]]
id = "Model Flash"
owned_by = "model-service"
context_window = 1048576
max_output_tokens = 131072

[model.price]
input = "0.10"
cached_input = "0.025"
output = "0.40"

[[model.upstream]]
kind = "vllm"
url = "http://127.0.0.1:8000/v1/"
model = "Qwen/Qwen3"
"#;

fn fault(from: &str, to: &str) -> String {
    let text = GOOD.replacen(from, to, 1);
    assert_ne!(text, GOOD, "{from} is in the catalogue");
    Catalog::parse(&text, "models.toml").unwrap_err().to_string()
}

#[test]
fn a_good_catalogue_is_read_exactly() {
    let catalog = Catalog::parse(GOOD, "models.toml").unwrap();
    let model = catalog.model("Model Flash").unwrap();
    assert_eq!(model.price.base.cached_input.nanos(), 25_000_000);
    assert_eq!(model.upstreams[0].limit_param.as_str(), "max_tokens");
    assert_eq!(model.upstreams[0].url.as_ref().unwrap().to_string(), "http://127.0.0.1:8000/v1");
    assert!(catalog.model("model flash").is_none());
    let finish = GOOD.replace("\"vllm\"", "\"vllm\"\nleft_mid_stream = \"finish\"");
    let left_mid_stream =
        |text: &str| Catalog::parse(text, "m").unwrap().models[0].upstreams[0].left_mid_stream;
    assert_eq!(
        (left_mid_stream(GOOD), left_mid_stream(&finish)),
        (LeftMidStream::Stop, LeftMidStream::Finish)
    );
    let image_urls = |text: &str| Catalog::parse(text, "m").unwrap().models[0].upstreams[0].image_urls;
    assert_eq!(image_urls(GOOD), ImageUrls::Data);
    assert_eq!(image_urls(&GOOD.replace("\"vllm\"", "\"openai\"")), ImageUrls::Https);
    assert_eq!(image_urls(&GOOD.replace("\"vllm\"", "\"vllm\"\nimage_urls = \"any\"")), ImageUrls::Any);
}

#[test]
fn a_model_takes_the_efforts_that_its_entry_lists() {
    let efforts = |line: &str| {
        let text = GOOD.replace("context_window", &format!("{line}\ncontext_window"));
        Catalog::parse(&text, "models.toml").map(|catalog| catalog.models[0].efforts.clone())
    };
    assert_eq!(efforts("").unwrap(), [Effort::Low, Effort::High]);
    assert_eq!(efforts("efforts = [\"none\", \"xhigh\"]").unwrap(), [Effort::None, Effort::Xhigh]);
    assert_eq!(efforts("efforts = []").unwrap(), []);
    let fault = |line: &str| efforts(line).unwrap_err().to_string();
    assert_eq!(
        fault("efforts = [\"low\", \"high\", \"low\"]"),
        "models.toml:10: `efforts` lists \"low\" twice"
    );
    let unknown = fault("efforts = [\"low\",\n\"mid\"]");
    assert!(
        unknown.starts_with("models.toml:11: unknown variant `mid`, expected one of `none`"),
        "{unknown}"
    );
}

#[test]
fn a_fault_is_reported_with_file_line_and_reason() {
    assert_eq!(
        fault("\n[model.price]\ninput = \"0.10\"\ncached_input = \"0.025\"\noutput = \"0.40\"\n", ""),
        "models.toml:8: model \"Model Flash\" has no [model.price] and no markup; set one of them"
    );
    assert!(fault("owned_by", "owned_bi").starts_with("models.toml:9: unknown field `owned_bi`"));
    assert!(fault("0.40", "0.4.0").starts_with("models.toml:16: `0.4.0` is not a number"));
    assert!(
        fault("0.10", "-1").contains("models.toml:13: model \"Model Flash\" has a price that is negative")
    );
    assert!(fault("131072", "0").contains("models.toml:11: max_output_tokens must be"));
    assert!(
        fault(
            "context_window = 1048576\nmax_output_tokens = 131072",
            "serves = [\"embeddings\"]\ncontext_window = 0"
        )
        .contains("models.toml:11: context_window must be at least 1")
    );
    assert!(fault("http://", "ftp://").starts_with("models.toml:20: \"ftp://"));
    assert!(fault("vllm", "vlm").contains("models.toml:19: unknown variant `vlm`"));
    let twice = fault(
        "max_output_tokens = 131072",
        "max_output_tokens = 131072\nextra_params = [\"top_k\", \"top_k\"]",
    );
    assert!(twice.contains("lists the extra parameter \"top_k\" twice"), "{twice}");
    assert!(
        fault("model = \"Qwen/Qwen3\"", "model = \"q\"\ntokenizer = \"tokenizer.json\"")
            .contains("models.toml:22: `tokenizer` is not supported")
    );
    for name in ["", "a=b", "a&b", "b%65ta"] {
        let line = format!("model = \"q\"\npass_query = [\"x\", \"{name}\"]");
        assert!(
            fault("model = \"Qwen/Qwen3\"", &line).contains("models.toml:22: names in pass_query may have"),
            "{name}"
        );
    }
    assert!(fault("model = \"Qwen/Qwen3\"", "").contains("needs its own name for the model"));
    let (head, model) = GOOD.split_at(GOOD.find("[[model]]").unwrap());
    let twice = Catalog::parse(&format!("{head}{model}{model}"), "m").unwrap_err().to_string();
    assert!(twice.contains("two models with the id \"Model Flash\""), "{twice}");
    assert!(Catalog::parse(head, "m").unwrap_err().to_string().contains("has no [[model]]"));
}

#[test]
fn an_upstream_has_a_name_of_its_own_in_its_model() {
    let names = |named: &str, second: &str| {
        let head = GOOD.replacen("model = \"Qwen/Qwen3\"", &format!("model = \"q\"\n{named}"), 1);
        let upstream =
            "[[model.upstream]]\nkind = \"vllm\"\nurl = \"http://10.0.0.6:8000/v1\"\nmodel = \"q\"\n";
        let catalog =
            Catalog::parse(&format!("{head}\n{upstream}{second}"), "m").map_err(|e| e.to_string())?;
        Ok::<_, String>(catalog.models[0].upstreams.iter().map(|of| of.name.clone()).collect::<Vec<_>>())
    };
    assert_eq!(names("", "").unwrap(), ["upstream-1", "upstream-2"]);
    assert_eq!(names("", "name = \"eu-2\"").unwrap(), ["upstream-1", "eu-2"]);
    let twice = names("name = \"eu-2\"", "name = \"eu-2\"").unwrap_err();
    assert!(twice.contains("two upstreams with the name \"eu-2\""), "{twice}");
    assert!(names("name = \"\"", "").unwrap_err().contains("1 to 64 characters"));
}

/// Returns how to reach an upstream to which these lines are added.
fn access(lines: &str) -> Result<Access, String> {
    let text = GOOD.replacen("model = \"Qwen/Qwen3\"", &format!("model = \"q\"\n{lines}"), 1);
    let catalog = Catalog::parse(&text, "m").map_err(|e| e.to_string())?;
    Ok(catalog.models[0].upstreams[0].access.clone())
}

#[test]
fn a_credential_goes_in_the_header_that_the_catalogue_names() {
    let name_of = |lines: &str| {
        let header = access(lines).unwrap().headers.remove(0);
        format!("{}: {}{}", header.name, header.prefix, header.source)
    };
    assert_eq!(name_of("api_key_env = \"K\""), "authorization: Bearer the environment variable K");
    assert_eq!(name_of("api_key_file = \"/k\"\nauth = \"bearer\""), "authorization: Bearer the file /k");
    assert_eq!(name_of("api_key_env = \"K\"\nauth = \"x-api-key\""), "x-api-key: the environment variable K");
    let further = "[model.upstream.headers]\nb = \"2\"\na = { env = \"A\" }\nc = { file = \"/c\" }";
    let headers = access(further).unwrap().headers;
    assert_eq!(headers.iter().map(|h| h.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(!format!("{headers:?}").contains("\"2\""), "a value cannot be printed");
}

#[test]
fn an_access_that_cannot_be_meant_is_refused_with_its_place() {
    for (lines, reason) in [
        ("api_key_env = \"K\"\napi_key_file = \"/k\"", "m:23: set api_key_env or api_key_file"),
        ("auth = \"api-key\"", "m:22: `auth` needs a credential"),
        ("api_key_env = \"K\"\nauth = \"no name\"", "m:23: \"no name\" is not a valid header name"),
        ("headers = { host = \"x\" }", "m:22: the gateway sets the header \"host\" itself"),
        ("headers = { a = \"x\\n\" }", "m:22: the value of header \"a\" has characters"),
        ("headers = { a = { environment = \"A\" } }", "a header is a text, { env = \"VARIABLE\" }"),
        (
            "api_key_env = \"K\"\nheaders = { Authorization = \"x\" }",
            "m:23: the header \"authorization\" is set twice",
        ),
        ("proxy = \"https://p:1\"", "m:22: a proxy must be an address such as"),
        ("proxy = \"http://me:secret@p:1/path\"", "m:22: a proxy must be an address such as"),
    ] {
        let refused = access(lines).err().unwrap_or_default();
        assert!(refused.contains(reason) && !refused.contains("secret"), "{lines}: {refused}");
    }
}

/// Returns the model of a catalogue in which these tables replace the price and these lines are added to the upstream.
fn sold(price: &str, upstream: &str) -> Result<Model, String> {
    let table = "[model.price]\ninput = \"0.10\"\ncached_input = \"0.025\"\noutput = \"0.40\"\n";
    let text = GOOD.replacen(table, price, 1) + upstream;
    Catalog::parse(&text, "m").map(|mut catalog| catalog.models.remove(0)).map_err(|e| e.to_string())
}

fn usd(text: &str) -> NanoUsd {
    NanoUsd::parse(text).unwrap()
}

const HOSTED: &str = r#"[model.price]
input = "3"
cached_input = "0.30"
output = "15"
cache_write = "3.75"
cache_write_long = "6"
request = "0.001"
[[model.price.above]]
prompt_tokens = 200000
input = "6"
cache_write_long = "12"
[[model.price.above]]
prompt_tokens = 500000
cache_write = "9"
image = "0.002"
"#;

#[test]
fn prices_have_their_defaults_and_tiers_continue_the_table_before() {
    let price =
        sold("[model.price]\ninput = \"1\"\ncached_input = \"2\"\noutput = \"3\"\n", "").unwrap().price;
    assert_eq!(*price, Price::flat(Rates::of_three(usd("1"), usd("2"), usd("3"))));
    let rates =
        |text: &str| Rates::of_array(text.split(' ').map(usd).collect::<Vec<_>>().try_into().unwrap());
    let price = sold(HOSTED, "").unwrap().price;
    assert_eq!(price.base, rates("3 0.3 15 3.75 6 15 3 15 0 0.001"));
    // In a tier, audio input costs by default the same as the tier's own input. A rate for cache writes that the base
    // states also applies in the tier.
    let first = Tier { above: 200_000, rates: rates("6 0.3 15 3.75 12 15 6 15 0 0.001") };
    let second = Tier { above: 500_000, rates: rates("6 0.3 15 9 12 15 6 15 0.002 0.001") };
    assert_eq!(price.tiers, [first, second]);
    // By default, writing to the cache for an hour costs the same as writing for minutes. This holds in each tier
    // separately.
    let price = sold(&HOSTED.replace("cache_write_long", "audio_output"), "").unwrap().price;
    assert_eq!(price.base, rates("3 0.3 15 3.75 3.75 15 3 6 0 0.001"));
    assert_eq!(price.tiers[1].rates, rates("6 0.3 15 9 9 15 6 12 0.002 0.001"));
}

#[test]
fn a_wrong_table_of_prices_is_refused_by_name() {
    for (from, to, expected) in [
        (
            "cached_input = \"0.30\"\n",
            "",
            "m:13: model \"Model Flash\" has no `cached_input` among its prices",
        ),
        (
            "500000",
            "200000",
            "m:25: model \"Model Flash\" has a tier whose `prompt_tokens` are 0, or not above",
        ),
        ("200000", "0", "m:21: model \"Model Flash\" has a tier whose `prompt_tokens` are 0"),
        (
            "500000",
            "100000",
            "m:25: model \"Model Flash\" has a tier whose `prompt_tokens` are 0, or not above",
        ),
        ("prompt_tokens = 500000\n", "", "m:24: model \"Model Flash\" has a tier without `prompt_tokens`"),
        (
            "cache_write = \"9\"\nimage = \"0.002\"\n",
            "",
            "m:24: model \"Model Flash\" has a tier without rates",
        ),
        (
            "input = \"3\"",
            "input = \"3\"\nprompt_tokens = 1",
            "m:15: model \"Model Flash\" has `prompt_tokens` outside a tier",
        ),
        ("image", "images", "m:27: unknown field `images`"),
        ("cache_write_long = \"12\"", "cache_write_1h = \"12\"", "m:23: unknown field `cache_write_1h`"),
        ("\"9\"", "\"-9\"", "m:24: model \"Model Flash\" has a price that is negative"),
        ("\"9\"", "\"9000001\"", "m:24: model \"Model Flash\" has a price that is negative or above 9000000"),
        ("\"9\"", "\"nine\"", "m:26: `nine` is not a number"),
    ] {
        let fault = sold(&HOSTED.replacen(from, to, 1), "").unwrap_err();
        assert!(fault.starts_with(expected), "{fault}, not {expected}");
    }
    let cost = "[model.upstream.cost]\ninput = \"1\"\noutput = \"1\"\n";
    let fault = sold(HOSTED, cost).unwrap_err();
    assert!(fault.contains("the cost of model \"Model Flash\" has no `cached_input`"), "{fault}");
}

/// Costs of an upstream. It charges 1.25 times the input rate for cache writes, and twice the input rate for prompts of
/// more than 200,000 tokens.
const COST: &str = r#"
[model.upstream.cost]
input = "2.5"
cached_input = "0.25"
output = "10"
cache_write = "3.125"
[[model.upstream.cost.above]]
prompt_tokens = 200000
input = "5"
"#;

#[test]
fn a_price_below_cost_is_refused_in_any_rate_and_tier_unless_it_is_meant() {
    let upstreams = sold(HOSTED, COST).unwrap().upstreams;
    let cost = upstreams[0].cost.as_ref().unwrap();
    assert_eq!((cost.base.cache_write, cost.tiers[0].rates.input), (usd("3.125"), usd("5")));
    for (from, to, expected) in [
        ("cache_write = \"3.75\"\n", "", "sells `cache_write` for 3, but pays 3.125"),
        ("\"0.30\"", "\"0.20\"", "sells `cached_input` for 0.2, but pays 0.25"),
        ("\"15\"", "\"9.999999999\"", "sells `output` for 9.999999999, but pays 10"),
        ("input = \"6\"\n", "", "sells `input` above 200000 prompt tokens for 3, but pays 5"),
        ("200000", "200001", "sells `input` above 200000 prompt tokens for 3, but pays 5"),
        (
            "image = \"0.002\"",
            "cached_input = \"0.1\"",
            "sells `cached_input` above 500000 prompt tokens for 0.1, but pays 0.25",
        ),
    ] {
        let price = HOSTED.replacen(from, to, 1);
        let fault = sold(&price, COST).unwrap_err();
        assert_eq!(
            fault,
            format!("m:13: model \"Model Flash\" {expected} for it; `sell_below_cost = true` allows that")
        );
        assert!(sold(&format!("sell_below_cost = true\n{price}"), COST).is_ok());
    }
    // The cost has a rate for images, but the price has none.
    let fault = sold(HOSTED, &COST.replacen("output", "image = \"0.01\"\noutput", 1)).unwrap_err();
    assert!(fault.contains("sells `image` for 0, but pays 0.01"), "{fault}");
}

#[test]
fn a_markup_makes_the_price_of_the_dearest_cost_rounded_up() {
    let model = sold("markup = \"1.2\"\n", COST).unwrap();
    let rates =
        |text: &str| Rates::of_array(text.split(' ').map(usd).collect::<Vec<_>>().try_into().unwrap());
    assert_eq!(model.price.base, rates("3 0.3 12 3.75 3.75 12 3 12 0 0"));
    assert_eq!(model.price.tiers, [Tier { above: 200_000, rates: rates("6 0.3 12 3.75 3.75 12 6 12 0 0") }]);
    let smallest = COST.replace("0.25", "0.000000001");
    assert_eq!(
        sold("markup = \"1.000000001\"\n", &smallest).unwrap().price.base.cached_input,
        usd("0.000000002")
    );
    // Compared with the first upstream, only the output of the second costs more, and its tier begins at another number
    // of tokens.
    let second = "[[model.upstream]]\nkind = \"openai\"\nurl = \"https://a.example/v1\"\nmodel = \"m\"\n";
    let other = COST.replace("\"10\"", "\"11\"").replace("200000", "100000").replace("\"5\"", "\"4\"");
    let price = sold("markup = \"1\"\n", &format!("{COST}{second}{other}")).unwrap().price;
    assert_eq!(price.base, rates("2.5 0.25 11 3.125 3.125 11 2.5 11 0 0"));
    let tiers =
        [(100_000, "4 0.25 11 3.125 3.125 11 4 11 0 0"), (200_000, "5 0.25 11 3.125 3.125 11 5 11 0 0")];
    assert_eq!(price.tiers, tiers.map(|(above, text)| Tier { above, rates: rates(text) }));
    for (price, upstreams, expected) in [
        (
            format!("markup = \"1.2\"\n{HOSTED}"),
            COST.to_owned(),
            "m:13: model \"Model Flash\" has both a price and a markup",
        ),
        (
            "markup = \"0.999\"\n".into(),
            COST.into(),
            "m:13: a markup must be a number of at least 1, not `0.999`",
        ),
        (
            "markup = \"much\"\n".into(),
            COST.into(),
            "m:13: a markup must be a number of at least 1, not `much`",
        ),
        (
            "markup = \"1.2\"\n".into(),
            String::new(),
            "m:13: model \"Model Flash\" has a markup, but one of its upstreams has no",
        ),
        (
            "markup = \"1.2\"\n".into(),
            format!("{COST}{second}"),
            "m:13: model \"Model Flash\" has a markup, but one of its upstreams has no",
        ),
        (
            "markup = \"1000001\"\n".into(),
            COST.into(),
            "m:13: model \"Model Flash\" has a markup that makes a price exceed the maximum",
        ),
        (String::new(), COST.into(), "m:8: model \"Model Flash\" has no [model.price] and no markup"),
    ] {
        let fault = sold(&price, &upstreams).unwrap_err();
        assert!(fault.starts_with(expected), "{fault}, not {expected}");
    }
}

#[test]
fn a_model_is_found_by_its_aliases_and_no_name_names_two() {
    let (head, model) = GOOD.split_at(GOOD.find("[[model]]").unwrap());
    let named = |id: &str, aliases: &str| {
        model.replace("id = \"Model Flash\"", &format!("id = \"{id}\"\naliases = [{aliases}]"))
    };
    let two = |first: &str, second: &str| {
        let text = format!("{head}{}{}", named("one", first), named("two", second));
        Catalog::parse(&text, "m").map_err(|e| e.to_string())
    };
    let catalog = two("\"uno\", \"eins\"", "\"due\"").unwrap();
    for (name, id) in [("one", "one"), ("eins", "one"), ("uno", "one"), ("due", "two")] {
        assert_eq!(catalog.model(name).unwrap().id, id);
    }
    assert!(catalog.model("Uno").is_none());
    assert_eq!(catalog.ids(), ["one", "two"]);
    for (first, second, expected) in [
        ("\"x\"", "\"x\"", "m:25: \"x\" is already the id or an alias of a model"),
        ("\"x\", \"x\"", "", "m:9: \"x\" is already the id or an alias"),
        ("\"two\"", "", "m:9: \"two\" is already the id or an alias"),
        ("\"one\"", "", "m:9: \"one\" is already the id or an alias"),
        ("\"\"", "", "m:9: an alias is empty"),
    ] {
        let fault = two(first, second).unwrap_err();
        assert!(fault.starts_with(expected), "{fault}, not {expected}");
    }
}

#[test]
fn a_model_says_through_which_apis_it_is_served() {
    let serves = |list: &str| sold(&format!("serves = [{list}]\n{HOSTED}"), "");
    assert_eq!(sold(HOSTED, "").unwrap().serves, Serves::CHAT);
    let both = Serves { chat: true, embeddings: true };
    assert_eq!(serves("\"embeddings\", \"chat\"").unwrap().serves, both);
    assert!(!serves("\"embeddings\"").unwrap().serves.chat);
    assert!(serves("\"speech\"").unwrap_err().starts_with("m:13: unknown variant `speech`"));
    for wrong in ["", "\"chat\", \"chat\""] {
        assert!(serves(wrong).unwrap_err().starts_with("m:13: `serves` must list"), "{wrong}");
    }
    // Embeddings have no output that could be limited.
    let unlimited = |serves: &str| {
        let text = GOOD.replace("max_output_tokens = 131072\n", serves);
        Catalog::parse(&text, "m")
            .map(|catalog| catalog.models[0].max_output_tokens)
            .map_err(|e| e.to_string())
    };
    assert_eq!(unlimited("serves = [\"embeddings\"]\n"), Ok(0));
    assert_eq!(unlimited("").unwrap_err(), "m:8: model \"Model Flash\" has no max_output_tokens");
}

#[test]
fn the_examples_of_the_manual_are_catalogues() {
    let manual = include_str!("../../../docs/catalogue.md");
    let blocks = manual.split("```toml\n").skip(1).map(|block| block.split("```").next().unwrap());
    let service = "[service]\nname = \"f\"\nprovider = \"f\"\ndocs = \"f\"\n";
    let catalog =
        Catalog::parse(&blocks.fold(service.to_owned(), |text, block| text + block), "manual").unwrap();
    assert_eq!(catalog.ids()[..2], ["Lark 2", "House 8B"]);
    assert_eq!(catalog.models[0].price.tiers[0].rates.cache_write_long, usd("14.4"));
}

#[test]
fn an_upstream_says_what_passes_to_it() {
    let with = |lines: &str| GOOD.replace("\"vllm\"", &format!("\"vllm\"\n{lines}"));
    let upstream = |text: &str| Catalog::parse(text, "m").unwrap().models.remove(0).upstreams.remove(0);
    let usual = upstream(GOOD);
    assert!(usual.pass_members.is_empty() && !usual.compaction && usual.share_cache);
    let named = "pass_members = [\"top_k\", \"reasoning.max_tokens\"]";
    let all = upstream(&with(&format!("{named}\ncompaction = true\nshare_cache = false")));
    assert_eq!(all.pass_members, ["top_k", "reasoning.max_tokens"]);
    assert!(all.compaction && !all.share_cache);
    for names in ["\"a\", \"a\"", "\"\"", "\"a b\"", &format!("\"{}\"", "a".repeat(65))] {
        let fault = Catalog::parse(&with(&format!("pass_members = [{names}]")), "m").unwrap_err().to_string();
        assert!(fault.starts_with("m:20: `pass_members` lists"), "{fault}");
    }
}

#[test]
fn only_a_vendors_own_hosts_take_what_its_documentation_does_not_have() {
    let owns = |url: &str| {
        let text = GOOD.replace("http://127.0.0.1:8000/v1/", url);
        let upstream = Catalog::parse(&text, "m").unwrap().models.remove(0).upstreams.remove(0);
        [UpstreamApi::Responses, UpstreamApi::Messages].map(|api| upstream.is_vendors_own(api))
    };
    for (url, owned) in [
        ("https://api.openai.com/v1", [true, false]),
        ("https://API.OpenAI.com.:443/v1", [true, false]),
        ("https://eu.api.openai.com/v1", [true, false]),
        ("https://api.anthropic.com/v1", [false, true]),
        ("https://xapi.openai.com/v1", [false, false]),
        ("https://api.openai.com.example/v1", [false, false]),
        ("https://resource.openai.azure.com/openai/v1", [false, false]),
        ("https://openrouter.ai/api/v1", [false, false]),
        ("https://api.openai.com@evil.example/v1", [false, false]),
    ] {
        assert_eq!(owns(url), owned, "{url}");
    }
}
