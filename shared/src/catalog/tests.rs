//! Catalogues that are read, and those that are refused.

use super::*;

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
fn a_fault_is_reported_with_file_line_and_reason() {
    assert_eq!(
        fault("\n[model.price]\ninput = \"0.10\"\ncached_input = \"0.025\"\noutput = \"0.40\"\n", ""),
        "models.toml:8: model \"Model Flash\" has no [model.price]; what has no price cannot be sold"
    );
    assert!(fault("owned_by", "owned_bi").starts_with("models.toml:9: unknown field `owned_bi`"));
    assert!(fault("0.40", "0.4.0").starts_with("models.toml:16: `0.4.0` is not a number"));
    assert!(fault("0.10", "-1").contains("models.toml:13: a price is negative"));
    assert!(fault("131072", "0").contains("models.toml:11: max_output_tokens must be"));
    assert!(fault("http://", "ftp://").starts_with("models.toml:20: \"ftp://"));
    assert!(fault("vllm", "vlm").contains("models.toml:19: unknown variant `vlm`"));
    let twice = fault(
        "max_output_tokens = 131072",
        "max_output_tokens = 131072\nextra_params = [\"top_k\", \"top_k\"]",
    );
    assert!(twice.contains("lists the extra parameter \"top_k\" twice"), "{twice}");
    assert!(
        fault("model = \"Qwen/Qwen3\"", "model = \"q\"\ntokenizer = \"tokenizer.json\"")
            .contains("models.toml:22: a tokenizer alone")
    );
    assert!(fault("model = \"Qwen/Qwen3\"", "").contains("needs the name it knows"));
    let (head, model) = GOOD.split_at(GOOD.find("[[model]]").unwrap());
    let twice = Catalog::parse(&format!("{head}{model}{model}"), "m").unwrap_err().to_string();
    assert!(twice.contains("two models with the id \"Model Flash\""), "{twice}");
    assert!(Catalog::parse(head, "m").unwrap_err().to_string().contains("no [[model]]"));
}
