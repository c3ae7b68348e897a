//! Parts of a body that only an upstream with the client's own API reads. The gateway searches them for two
//! things: images, which cost tokens; and files and addresses, which are refused here as in any other part.

use std::fmt;

use raw_json::{Members, Value};
use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};
use shared::{
    error::{ApiError, Code},
    json::Text,
};
use shared_catalog::ImageUrls;
use token_bounds::MAX_DEPTH;

use super::{body::Draft, image::check_url};
use crate::names::known::folded;

/// Error for a file that is stored, or that is at an address.
const NO_FILES: &str = "no files are stored or fetched here; send the content";

impl Draft {
    /// Notes members that only an upstream with the client's own API accepts; `fault` is the error for other upstreams.
    /// Texts and images in these members count towards the prompt.
    pub(crate) fn pass_only(
        &mut self,
        part: &Members<'_, '_>,
        fault: impl FnOnce() -> ApiError,
    ) -> Result<(), ApiError> {
        part.iter().try_for_each(|(name, value)| self.pass_value(name, &value))?;
        if self.untranslatable.is_none() {
            self.untranslatable = Some(fault());
        }
        Ok(())
    }

    /// Notes a document, whose tokens only the upstream can count.
    pub(crate) fn document(&mut self, part: &Members<'_, '_>, fault: ApiError) -> Result<(), ApiError> {
        self.needs_count = true;
        self.pass_only(part, || fault)
    }

    /// Adds the value of a member to the prompt's count. The value is not read otherwise.
    pub(crate) fn pass_value(&mut self, name: &str, value: &Value<'_, '_>) -> Result<(), ApiError> {
        self.shown.unread(value.raw());
        let mut found = PartFindings::default();
        let walk = Walk { name: Name::of(name), depth: 0, found: &mut found };
        let walked = walk.deserialize(&mut serde_json::Deserializer::from_str(value.raw()));
        self.shown.images += found.images;
        if found.source > ImageUrls::Data {
            self.needs(found.source, value);
        }
        match (found.fault, walked) {
            (Some((code, problem)), _) => Err(value.error(code, problem)),
            // The value is well-formed JSON, so depth is the only possible fault.
            (None, Err(_)) => Err(value.error(Code::InvalidValue, &format!("is nested deeper than {MAX_DEPTH} levels, or has half a surrogate pair or a number that is too large"))),
            (None, Ok(())) => Ok(()),
        }
    }
}

/// The images found in an unread part, and the first fault.
#[derive(Default)]
struct PartFindings {
    images: u64,
    /// Kind of image URLs that an upstream must accept.
    source: ImageUrls,
    fault: Option<(Code, &'static str)>,
}

/// Names of members that get special treatment in an unread part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    /// An image's address, or an object with that address.
    Image,
    /// A source: an object with an address, or with content and its type.
    Source,
    /// The address in an image or a source.
    Url,
    /// Type of the content, in a source with content.
    MediaType,
    /// A file, by id or address.
    File,
    Other,
}

impl Name {
    /// Reads a name without regard to case, as some servers do.
    fn of(name: &str) -> Self {
        match &*folded(name) {
            "image_url" => Self::Image,
            "source" => Self::Source,
            "media_type" => Self::MediaType,
            "file_id" | "file_url" => Self::File,
            _ => Self::Other,
        }
    }

    /// Returns the meaning of a member within a value of this name.
    fn member(self, name: &str) -> Self {
        match (self, name) {
            (Self::Image | Self::Source, name) if folded(name) == "url" => Self::Url,
            (_, name) => Self::of(name),
        }
    }
}

/// A walk through the values within an unread part.
struct Walk<'f> {
    name: Name,
    depth: u64,
    found: &'f mut PartFindings,
}

impl PartFindings {
    /// Checks a text in a member with this name. If the text is an image, counts the image.
    fn text(&mut self, name: Name, text: &str) -> Result<(), (Code, &'static str)> {
        match name {
            Name::Image | Name::Url => {
                self.images += 1;
                self.source = self.source.max(check_url(text)?);
            }
            Name::MediaType => {
                let start: String = text.chars().take("image/".len()).collect();
                self.images += u64::from(folded(&start).starts_with("image/"));
            }
            Name::File => return Err((Code::UnsupportedParameter, NO_FILES)),
            Name::Source | Name::Other => {}
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.found.text(self.name, text).map_err(|fault| {
            self.found.fault = Some(fault);
            E::custom("refused")
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let depth = deeper::<A::Error>(self.depth)?;
        while elements.next_element_seed(Walk { name: self.name, depth, found: &mut *self.found })?.is_some()
        {
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let depth = deeper::<A::Error>(self.depth)?;
        while let Some(Text(name)) = members.next_key()? {
            let name = self.name.member(&name);
            members.next_value_seed(Walk { name, depth, found: &mut *self.found })?;
        }
        Ok(())
    }
}

fn deeper<E: Error>(depth: u64) -> Result<u64, E> {
    if depth == MAX_DEPTH { Err(E::custom("too deep")) } else { Ok(depth + 1) }
}
