//! Failures of `faregate init` at each vendor and at each local server. Each of these has its own environment variable
//! and address.

use std::fs;

use http::Uri;
use tests::harness::free_port;

use super::*;

/// A model that no vendor offers.
const UNKNOWN: &str = "larch";

/// A preset, and a stand-in for the vendor that it describes.
struct Case {
    preset: Preset,
    stand_in: StandIn,
    /// Path in the address of the preset.
    path: String,
    variable: Option<&'static str>,
}

impl Case {
    async fn all() -> Vec<Self> {
        let mut cases = Vec::new();
        for preset in Preset::all().unwrap() {
            let (header, value) = credential(&preset);
            let stand_in =
                StandIn::start(move |asked| vendor_that_knows_its_models(asked, header, value)).await;
            let path = preset.url.parse::<Uri>().unwrap().path().to_owned();
            let variable = preset.api_key_env.clone().map(|name| &*name.leak());
            cases.push(Self { preset, stand_in, path, variable });
        }
        cases
    }

    /// Returns the error of the command for this vendor, with this credential and these additional flags.
    fn fails(&self, folder: &Folder, key: Option<&str>, address: &str, flags: &[&str]) -> String {
        let env: Vec<_> = self.variable.zip(key).into_iter().collect();
        let words = [&["--vendor", &self.preset.name, "--address", address], flags].concat();
        let Err(error) = folder.init(&env, &words) else { panic!("{} takes {flags:?}", self.preset.name) };
        assert_eq!(folder.files(), ["prices.json"], "{}: {error}", self.preset.name);
        error
    }

    #[track_caller]
    fn assert_says(&self, error: &str, expected: &[&str]) {
        for words in expected {
            assert!(error.contains(words), "{}: {words:?} is not in {error}", self.preset.name);
        }
    }
}

/// Answers like a vendor that has error messages of its own for a wrong key and for an unknown model.
fn vendor_that_knows_its_models(asked: &AskedOf, header: &str, value: &str) -> Given {
    if asked.header(header) != value {
        // Google and xAI answer a wrong key with status 400.
        let status = if asked.path.starts_with("/v1beta") { 400 } else { 401 };
        return (
            status,
            json!([{"error": {"message": "API key not valid. Please pass a valid API key."}}]).to_string(),
        );
    }
    if asked.method == Method::POST && asked.json()["model"] == UNKNOWN {
        let message = format!("The model `{UNKNOWN}` does not exist.");
        return (404, json!({"error": {"message": message}}).to_string());
    }
    answer(asked)
}

#[apply(fact)]
async fn what_goes_wrong_at_a_vendor_is_said_with_its_own_variable_and_address_and_leaves_no_file() {
    let folder = Folder::new();
    fs::write(folder.path().join("prices.json"), "{}").unwrap();
    let empty = StandIn::start(|_| (404, r#"{"detail":"Not Found"}"#.into())).await;
    for case in Case::all().await {
        let Preset { title, names_unlisted, .. } = &case.preset;
        let address = case.stand_in.url(&case.path);
        let lark = [&["--model", "lark"], &PRICE[..]].concat();
        if let Some(variable) = case.variable {
            let unset = case.fails(&folder, None, &address, &lark);
            case.assert_says(&unset, &[variable, "is not set", title, "--api-key-env"]);
            assert!(case.stand_in.asked().is_empty(), "{title} is not asked without a credential");
            let wrong = case.fails(&folder, Some("sk-of-someone-else"), &address, &lark);
            let todo = format!("Check the key in {variable}");
            case.assert_says(&wrong, &["refuses the credential (40", "API key not valid", &todo]);
        } else {
            let guarded = vendor("authorization", "Bearer sk-init-secret-0123456789").await;
            let wants = case.fails(&folder, None, &guarded.url(&case.path), &lark);
            case.assert_says(&wants, &["(401)", "needs a credential", "--api-key-env"]);
        }
        let key = case.variable.and(Some(KEY));
        let closed = format!("http://127.0.0.1:{}{}", free_port(), case.path);
        let away = case.fails(&folder, key, &closed, &lark);
        case.assert_says(&away, &[&closed, "cannot be reached", "--address"]);
        let missing = case.fails(&folder, key, &empty.url(&case.path), &[&lark[..], &["--check"]].concat());
        case.assert_says(&missing, &["(404)", "--address", "/v1"]);

        let unknown = [&["--model", UNKNOWN, "--check"], &PRICE[..]].concat();
        let unknown = case.fails(&folder, key, &address, &unknown);
        if *names_unlisted {
            case.assert_says(
                &unknown,
                &["The model `larch` does not exist", "--model", "othing was written"],
            );
        } else {
            case.assert_says(
                &unknown,
                &["--model", "no model \"larch\"; its models are lark, lark-mini, wren"],
            );
        }
        let unpriced = ["--model", "lark", "--prices", "prices.json"];
        let unpriced = case.fails(&folder, key, &address, &unpriced);
        case.assert_says(&unpriced, &["no price for \"lark\"", title, "--price input=", "--free"]);
    }
}
