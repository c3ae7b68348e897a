//! Presets: settings for known vendors and for the software of local servers. They contain no prices.

use http::Uri;
use serde::{Deserialize, Serialize};

use crate::{
    effort::Effort,
    history::{CallIds, ReasoningParam},
    upstream::{ImageUrls, LeftBeforeHead, LeftMidStream, LimitParam, UpstreamApi, UpstreamKind},
};

/// The table of presets, compiled into every program.
const TABLE: &str = include_str!("../../../config/presets.toml");

/// Minimum length of a blank: a word in capitals in an address, which the operator must replace.
const MIN_BLANK: usize = 4;

/// A vendor, or the software of a local server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Name of the preset on the command line.
    pub name: String,
    /// Name of the vendor, as people read it.
    pub title: String,
    /// Names of the vendor in public price lists.
    #[serde(default)]
    pub listed_as: Vec<String>,
    /// Further hosts of this vendor. A name that begins with a dot stands for all subdomains.
    #[serde(default)]
    hosts: Vec<String>,
    /// Value of `owned_by` by which the software is recognised. It is in the server's list of models.
    owned_by: Option<String>,
    /// Whether the server may have no list of models, or a list that lacks some of the models that it serves.
    #[serde(default)]
    pub names_unlisted: bool,
    /// Context window that is assumed if the server does not report one.
    pub context_window: Option<u64>,
    /// Advice on how to start the server.
    pub hint: Option<String>,
    pub kind: UpstreamKind,
    pub url: String,
    /// Environment variable that contains the credential.
    pub api_key_env: Option<String>,
    auth: Option<String>,
    speaks: Option<Vec<UpstreamApi>>,
    limit_param: Option<LimitParam>,
    reasoning_param: Option<ReasoningParam>,
    call_ids: Option<CallIds>,
    thought_signatures: Option<bool>,
    left_before_head: Option<LeftBeforeHead>,
    left_mid_stream: Option<LeftMidStream>,
    image_urls: Option<ImageUrls>,
    efforts: Option<Vec<Effort>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PresetTable {
    preset: Vec<Preset>,
}

impl Preset {
    /// Reads all presets. A test reads them too, so that no program is released with a faulty table.
    pub fn all() -> Result<Vec<Self>, toml::de::Error> {
        toml::from_str::<PresetTable>(TABLE).map(|table| table.preset)
    }

    /// Returns a preset for an unknown server at this address that speaks the OpenAI chat API.
    pub fn unknown(url: &str) -> Self {
        Self {
            name: "openai-compatible".into(),
            title: "a server of the OpenAI chat API".into(),
            listed_as: Vec::new(),
            hosts: Vec::new(),
            owned_by: None,
            names_unlisted: false,
            context_window: None,
            hint: None,
            kind: UpstreamKind::Openai,
            url: url.to_owned(),
            api_key_env: None,
            auth: None,
            speaks: None,
            limit_param: None,
            reasoning_param: None,
            call_ids: None,
            thought_signatures: None,
            left_before_head: None,
            left_mid_stream: None,
            image_urls: None,
            efforts: None,
        }
    }

    /// Returns the word in capitals in the address. It is a blank that the operator must replace.
    pub fn blank(&self) -> Option<&str> {
        let words = self.url.split(|c: char| !c.is_ascii_uppercase());
        words.max_by_key(|word| word.len()).filter(|word| word.len() >= MIN_BLANK)
    }

    /// Returns whether an address belongs to this vendor. This is always false for local servers, which are recognised
    /// by how they describe themselves.
    pub fn is_at(&self, address: &Uri) -> bool {
        let Some(host) = address.host() else { return false };
        let own = self.url.parse::<Uri>().ok();
        let own = own.as_ref().and_then(Uri::host).filter(|_| !self.is_local());
        let is_below = |known: &String| known.starts_with('.') && host.ends_with(known.as_str());
        own == Some(host) || self.hosts.iter().any(|known| known == host || is_below(known))
    }

    /// Returns whether servers with this software report `owned_by` as the owner of their models.
    pub fn is_of(&self, owned_by: &str) -> bool {
        self.owned_by.as_deref() == Some(owned_by)
    }

    /// Returns whether the server runs on the operator's machines.
    pub const fn is_local(&self) -> bool {
        self.owned_by.is_some()
    }

    /// Returns whether public price lists use this name for the vendor.
    pub fn is_listed_as(&self, owner: &str) -> bool {
        self.listed_as.iter().any(|name| name == owner)
    }

    /// Returns the fields of `[[model.upstream]]` as TOML. Fields that have their default value are left out.
    pub fn upstream_fields(&self) -> impl Iterator<Item = (&'static str, String)> {
        let fields = [
            ("kind", toml_of(self.kind)),
            ("url", toml_of(&self.url)),
            ("api_key_env", self.api_key_env.as_ref().and_then(toml_of)),
            ("auth", self.auth.as_ref().and_then(toml_of)),
            ("speaks", self.speaks.as_deref().and_then(list_of)),
            ("limit_param", self.limit_param.and_then(toml_of)),
            ("reasoning_param", self.reasoning_param.and_then(toml_of)),
            ("call_ids", self.call_ids.and_then(toml_of)),
            ("thought_signatures", self.thought_signatures.and_then(toml_of)),
            ("left_before_head", self.left_before_head.and_then(toml_of)),
            ("left_mid_stream", self.left_mid_stream.and_then(toml_of)),
            ("image_urls", self.image_urls.and_then(toml_of)),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }

    /// Returns the model's `efforts` as TOML, unless they are the default.
    pub fn efforts_field(&self) -> Option<String> {
        self.efforts.as_deref().and_then(list_of)
    }
}

/// Writes a value as TOML, with strings spelled as in JSON.
fn toml_of(value: impl Serialize) -> Option<String> {
    serde_json::to_string(&value).ok()
}

fn list_of(values: &[impl Serialize]) -> Option<String> {
    let values: Option<Vec<String>> = values.iter().map(toml_of).collect();
    Some(format!("[{}]", values?.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::catalog::Catalog;

    /// Returns a catalogue with one model, whose upstream is this preset.
    fn catalogue(preset: &Preset) -> Catalog {
        let efforts =
            preset.efforts_field().map_or_else(String::new, |efforts| format!("efforts = {efforts}\n"));
        let fields = preset.upstream_fields().map(|(name, value)| format!("{name} = {value}\n"));
        let text = format!(
            "[service]\nname = \"f\"\nprovider = \"f\"\ndocs = \"f\"\n[[model]]\nid = \"m\"\nowned_by = \"o\"\n{efforts}\
             context_window = 9\nmax_output_tokens = 9\n[model.price]\ninput = \"1\"\ncached_input = \"1\"\noutput = \"1\"\n\
             [[model.upstream]]\nmodel = \"m\"\n{}",
            fields.collect::<String>()
        );
        Catalog::parse(&text, &preset.name).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }

    #[test]
    fn every_preset_makes_a_valid_catalogue_and_has_names_of_its_own() {
        let presets = Preset::all().unwrap();
        let local = presets.iter().filter(|preset| preset.is_local()).count();
        assert!(local >= 5 && presets.len() - local >= 15, "{local} of {}", presets.len());
        let mut taken = HashSet::new();
        for preset in &presets {
            let model = catalogue(preset).models.remove(0);
            let upstream = &model.upstreams[0];
            let url = upstream.url.as_ref().unwrap();
            assert_eq!((url.to_string(), upstream.kind), (preset.url.clone(), preset.kind));
            assert_eq!(url.scheme_str() == Some("https"), !preset.is_local(), "{}", preset.name);
            assert_eq!(upstream.access.headers.is_empty(), preset.is_local(), "{}", preset.name);
            // No local server uses Faregate's own port. Exactly the vendors' presets bill the prompt and all reasoning
            // even if the client leaves.
            assert_ne!(url.port_u16(), Some(8080), "{}", preset.name);
            let bills_all = upstream.left_before_head == LeftBeforeHead::Prompt
                && upstream.left_mid_stream == LeftMidStream::Finish;
            assert_eq!(bills_all, !preset.is_local(), "{}", preset.name);
            assert_eq!(model.efforts.len() == Effort::WORDS.len(), !preset.is_local(), "{}", preset.name);
            for name in preset.listed_as.iter().chain([&preset.name]).collect::<HashSet<_>>() {
                assert!(taken.insert(name), "{name} is the name of two presets");
            }
        }
    }

    #[test]
    fn an_address_is_recognised_by_its_host() {
        let presets = Preset::all().unwrap();
        let at = |address: &str| {
            let address = address.parse().unwrap();
            let found = presets.iter().filter(|preset| preset.is_at(&address));
            found.map(|preset| preset.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(at("https://api.openai.com/v1"), ["openai"]);
        assert_eq!(at("https://mine.openai.azure.com/openai/v1"), ["azure"]);
        assert_eq!(at("https://bedrock-mantle.us-east-1.api.aws/v1"), ["bedrock"]);
        for other in
            ["http://127.0.0.1:8000/v1", "https://openai.com.example.com/v1", "https://openai.azure.com/v1"]
        {
            assert_eq!(at(other), [""; 0], "{other}");
        }
        let blanks = presets.iter().filter_map(|preset| Some((preset.name.as_str(), preset.blank()?)));
        assert_eq!(blanks.collect::<Vec<_>>(), [("azure", "RESOURCE"), ("bedrock", "REGION")]);
        assert!(presets.iter().any(|preset| preset.is_of("vllm") && preset.kind == UpstreamKind::Vllm));
    }
}
