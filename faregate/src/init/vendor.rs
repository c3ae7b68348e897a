//! The vendor or address that a person names, and its preset.

use http::Uri;
use shared::text::shown;
use shared_catalog::Preset;

/// Maximum number of characters that an error repeats from a person's answer.
const MAX_SHOWN_ANSWER: usize = 80;
/// Environment variable with the credential for a server without a preset.
pub(super) const UPSTREAM_KEY: &str = "UPSTREAM_KEY";

/// A vendor, or a server whose host has no preset.
#[derive(Clone, Debug)]
pub(super) struct Vendor {
    /// The preset's settings, with the address and the variable that the operator gave, if any.
    pub(super) preset: Preset,
    /// Whether no preset fits. The server's list of models may still show what kind of server it is.
    pub(super) is_unknown: bool,
}

/// The vendor as a person named it.
#[derive(Clone, Copy, Debug)]
pub(super) struct VendorNamed<'a> {
    pub(super) name: Option<&'a str>,
    pub(super) address: Option<&'a str>,
    pub(super) api_key_env: Option<&'a str>,
}

impl Vendor {
    /// Finds the named vendor; `None` if no vendor was named. `has_upstream_key` means that `UPSTREAM_KEY` is set.
    pub(super) fn of(
        presets: &[Preset],
        named: VendorNamed<'_>,
        has_upstream_key: bool,
    ) -> Result<Option<Self>, String> {
        let address = named.address.map(checked_address).transpose()?;
        let by_host = || address.as_ref().and_then(|uri| presets.iter().find(|preset| preset.is_at(uri)));
        let known = match named.name {
            Some(name) => Some(by_name(presets, name)?),
            None => by_host(),
        };
        let mut vendor = match (known, &address) {
            (Some(preset), _) => Self { preset: preset.clone(), is_unknown: false },
            (None, Some(_)) => {
                let mut preset = Preset::unknown("");
                preset.api_key_env = has_upstream_key.then(|| UPSTREAM_KEY.to_owned());
                Self { preset, is_unknown: true }
            }
            (None, None) => return Ok(None),
        };
        if let Some(address) = address {
            vendor.preset.url = address.to_string();
        }
        if let Some(variable) = named.api_key_env {
            vendor.preset.api_key_env = Some(variable.to_owned());
        }
        Ok(Some(vendor))
    }

    /// If the server is unknown, uses the preset for servers that report `owner` as the owner of their models.
    pub(super) fn recognised(self, presets: &[Preset], owner: Option<&str>) -> Self {
        let known = owner.and_then(|owner| presets.iter().find(|preset| preset.is_of(owner)));
        match known {
            Some(known) if self.is_unknown => {
                let mut preset = known.clone();
                Preset { url: preset.url, api_key_env: preset.api_key_env, .. } = self.preset;
                Self { preset, is_unknown: false }
            }
            Some(_) | None => self,
        }
    }

    /// Explains how to replace the placeholder in the vendor's address, if it has one.
    pub(super) fn blank(&self) -> Option<String> {
        let blank = self.preset.blank()?;
        let Preset { title, url, .. } = &self.preset;
        Some(format!("the address of {title} is {url}; replace {blank} with your own value"))
    }
}

fn by_name<'a>(presets: &'a [Preset], name: &str) -> Result<&'a Preset, String> {
    let is_named =
        |preset: &&Preset| preset.name.eq_ignore_ascii_case(name) || preset.title.eq_ignore_ascii_case(name);
    presets.iter().find(is_named).ok_or_else(|| {
        let names: Vec<&str> = presets.iter().map(|preset| preset.name.as_str()).collect();
        let name = shown(name, MAX_SHOWN_ANSWER);
        format!(
            "there is no vendor \"{name}\"; the vendors are {}. Name any other server with --address",
            names.join(", ")
        )
    })
}

/// Checks an address: it must be http or https, and must not contain a credential, which would be written to the file.
fn checked_address(text: &str) -> Result<Uri, String> {
    let uri: Option<Uri> = text.trim().trim_end_matches('/').parse().ok();
    let uri = uri.filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some());
    let uri = uri.ok_or_else(|| {
        let text = shown(text, MAX_SHOWN_ANSWER);
        format!("\"{text}\" is not an http(s) address such as http://127.0.0.1:8000/v1")
    })?;
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("the address must not contain a credential; put the credential into an environment variable, and \
                    name the variable with --api-key-env"
            .into());
    }
    Ok(uri)
}

/// Lists all presets as a numbered menu.
pub(super) fn menu(presets: &[Preset]) -> String {
    let line = |(place, preset): (usize, &Preset)| {
        let Preset { name, title, url, .. } = preset;
        let local = if preset.is_local() { format!(" at {url}") } else { String::new() };
        format!("{:>4}  {name:<12}{title}{local}\n", place + 1)
    };
    presets.iter().enumerate().map(line).collect()
}

/// Interprets an answer to the menu: a number, a name, or an address. Returns the name or the address.
pub(super) fn chosen<'a>(presets: &'a [Preset], answer: &'a str) -> VendorNamed<'a> {
    let number = answer.parse::<usize>().ok().and_then(|number| presets.get(number.checked_sub(1)?));
    let none = VendorNamed { name: None, address: None, api_key_env: None };
    match number {
        Some(preset) => VendorNamed { name: Some(&preset.name), ..none },
        None if answer.contains("://") => VendorNamed { address: Some(answer), ..none },
        None => VendorNamed { name: Some(answer), ..none },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(
        name: Option<&str>,
        address: Option<&str>,
        api_key_env: Option<&str>,
    ) -> Result<Option<Vendor>, String> {
        Vendor::of(&Preset::all().unwrap(), VendorNamed { name, address, api_key_env }, true)
    }

    #[test]
    fn a_vendor_is_known_by_its_name_or_its_host_and_any_other_server_by_its_address() {
        let preset = |name, address| of(name, address, None).unwrap().unwrap().preset;
        assert_eq!(preset(Some("OpenAI"), None).url, "https://api.openai.com/v1");
        let here = preset(Some("openai"), Some("http://127.0.0.1:9/v1/"));
        assert_eq!((here.name.as_str(), here.url.as_str()), ("openai", "http://127.0.0.1:9/v1"));
        assert_eq!(here.api_key_env.as_deref(), Some("OPENAI_API_KEY"));
        let azure = preset(None, Some("https://mine.openai.azure.com/openai/v1?api-version=preview"));
        assert_eq!(azure.name, "azure");
        assert!(azure.url.ends_with("/openai/v1?api-version=preview") && azure.blank().is_none());
        let other = of(None, Some("http://10.0.0.5:8000/v1"), None).unwrap().unwrap();
        assert!(other.is_unknown);
        assert_eq!(other.preset.api_key_env.as_deref(), Some("UPSTREAM_KEY"));
        let other = other.recognised(&Preset::all().unwrap(), Some("vllm")).preset;
        assert_eq!((other.name.as_str(), other.url.as_str()), ("vllm", "http://10.0.0.5:8000/v1"));
        assert_eq!(other.api_key_env.as_deref(), Some("UPSTREAM_KEY"));
        assert!(of(None, None, None).unwrap().is_none());
        let named = of(Some("vllm"), None, Some("MY_KEY")).unwrap().unwrap();
        assert_eq!(named.preset.api_key_env.as_deref(), Some("MY_KEY"));
        // A vendor that was named is not replaced by the vendor that the list of models suggests.
        assert_eq!(named.recognised(&Preset::all().unwrap(), Some("sglang")).preset.name, "vllm");
    }

    #[test]
    fn what_no_vendor_can_be_made_of_is_said_with_what_there_is() {
        let fault = |name, address| of(name, address, None).unwrap_err();
        let unknown = fault(Some("opnai\u{1b}"), None);
        assert!(unknown.contains(r#""opnai\u{1b}"; the vendors are openai, anthropic"#), "{unknown}");
        for address in ["127.0.0.1:8000", "ftp://a/v1", "http://", "vllm"] {
            assert!(fault(None, Some(address)).contains("is not an http(s) address such as"), "{address}");
        }
        let secret = fault(None, Some("https://user:secret@a/v1"));
        assert!(secret.contains("--api-key-env") && !secret.contains("secret@"), "{secret}");
        let blank = of(Some("azure"), None, None).unwrap().unwrap().blank().unwrap();
        assert!(blank.contains("replace RESOURCE with your own value"), "{blank}");
    }

    #[test]
    fn a_menu_is_answered_by_number_name_or_address() {
        let presets = Preset::all().unwrap();
        let menu = menu(&presets);
        assert_eq!(menu.lines().count(), presets.len());
        assert!(menu.starts_with("   1  openai      OpenAI\n"), "{menu}");
        assert_eq!(chosen(&presets, "2").name, Some("anthropic"));
        assert_eq!(chosen(&presets, "mistral").name, Some("mistral"));
        assert_eq!(chosen(&presets, "0").name, Some("0"));
        assert_eq!(chosen(&presets, "http://a/v1").address, Some("http://a/v1"));
    }
}
