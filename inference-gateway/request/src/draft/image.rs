//! Checks images: where they may come from, and how large they may be within a body. The gateway fetches no image.

mod host;

use raw_json::Value;
use shared::error::{ApiError, Code};
use shared_catalog::ImageUrls;

use super::body::Draft;

/// Largest image within a body, in decoded bytes.
const MAX_IMAGE_BYTES: usize = 20 << 20;
/// Longest URL of a remote image, in bytes: what browsers and proxies accept.
const MAX_URL_BYTES: usize = 8 << 10;
/// Accepted formats of images; `jpg` is an alias of `jpeg`.
pub(crate) const FORMATS: [&str; 5] = ["png", "jpeg", JPG, "webp", "gif"];
/// This is not a registered media type, so servers that check the type refuse it.
const JPG: &str = "jpg";

/// Checks an image by its URL, and writes the content part. The bytes of an image do not count as text.
pub(crate) fn image_url(
    url: &Value<'_, '_>,
    detail: Option<&Value<'_, '_>>,
    draft: &mut Draft,
) -> Result<(), ApiError> {
    let text = url.string()?;
    let source = check_url(&text).map_err(|(code, problem)| url.error(code, problem))?;
    let detail = detail.map(|detail| detail.one_of(&["auto", "low", "high"])).transpose()?;
    draft.needs(source, url);
    draft.places.image.get_or_insert_with(|| url.place());
    match jpg_data(&text) {
        Some(digits) => write(&["\"data:image/jpeg;base64,", digits, "\""], detail, draft),
        None => write(&[url.raw()], detail, draft),
    }
    Ok(())
}

/// Checks an image by its media type and data, and writes the content part.
pub(crate) fn image_data(
    media_type: &Value<'_, '_>,
    data: &Value<'_, '_>,
    draft: &mut Draft,
) -> Result<(), ApiError> {
    let format = media_type.string()?;
    let Some(format) = format_of(&format) else {
        return Err(media_type
            .error(Code::InvalidValue, "must be 'image/png', 'image/jpeg', 'image/webp' or 'image/gif'"));
    };
    check_base64(&data.string()?).map_err(|(code, problem)| data.error(code, problem))?;
    draft.places.image.get_or_insert_with(|| data.place());
    let format = if format == JPG { "jpeg" } else { format };
    let digits = data.raw();
    write(&["\"data:image/", format, ";base64,", &digits[1..]], None, draft);
    Ok(())
}

/// Writes the content part of an image. `url` has the pieces of its URL, as spelled within a JSON string.
fn write(url: &[&str], detail: Option<&str>, draft: &mut Draft) {
    draft.shown.images += 1;
    draft.push("{\"type\":\"image_url\",\"image_url\":{\"url\":");
    for piece in url {
        draft.push(piece);
    }
    if let Some(detail) = detail {
        draft.push(",\"detail\":\"");
        draft.push(detail);
        draft.push("\"");
    }
    draft.push("}}");
}

/// Checks a URL. Returns the kind of URLs that an upstream must accept.
pub(super) fn check_url(url: &str) -> Result<ImageUrls, (Code, &'static str)> {
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err((Code::InvalidValue, "must be an https, http or data URL"));
    };
    if scheme.eq_ignore_ascii_case("data") {
        return check_data(rest).map(|()| ImageUrls::Data);
    }
    let is_https = scheme.eq_ignore_ascii_case("https");
    if !is_https && !scheme.eq_ignore_ascii_case("http") {
        return Err((Code::InvalidValue, "must be an https, http or data URL"));
    }
    if url.len() > MAX_URL_BYTES {
        return Err((Code::StringAboveMaxLength, "has more than 8192 bytes"));
    }
    let host = rest.strip_prefix("//").unwrap_or_default();
    // Some URL parsers treat a backslash as a slash, and others as a part of the host.
    if host.is_empty()
        || host.starts_with(['/', '?', '#', ':'])
        || url.contains(|c: char| c <= ' ' || c == '\x7f' || c == '\\')
    {
        return Err((Code::InvalidValue, "is not a valid URL"));
    }
    let authority = host.split(['/', '?', '#']).next().unwrap_or_default();
    Ok(if is_https && host::is_public(authority) { ImageUrls::Https } else { ImageUrls::Any })
}

/// Checks `image/png;base64,…` without decoding the data.
fn check_data(rest: &str) -> Result<(), (Code, &'static str)> {
    let data = rest.split_once(',').and_then(|(kind, data)| {
        let (media_type, encoding) = kind.split_once(';')?;
        format_of(media_type)?;
        encoding.eq_ignore_ascii_case("base64").then_some(data)
    });
    let Some(data) = data else {
        let problem =
            "a data URL must begin with 'data:image/png;base64,', or the same with jpeg, webp or gif";
        return Err((Code::InvalidValue, problem));
    };
    check_base64(data)
}

/// Returns the format of a media type, if it is accepted.
fn format_of(media_type: &str) -> Option<&'static str> {
    let (image, format) = media_type.split_once('/')?;
    let known = FORMATS.iter().find(|known| format.eq_ignore_ascii_case(known));
    known.copied().filter(|_| image.eq_ignore_ascii_case("image"))
}

/// Checks the data of an image without decoding it.
fn check_base64(data: &str) -> Result<(), (Code, &'static str)> {
    let digits = data.strip_suffix("==").or_else(|| data.strip_suffix('=')).unwrap_or(data);
    if digits.is_empty() || !data.len().is_multiple_of(4) || !all_base64(digits) {
        return Err((Code::InvalidValue, "the image is not valid base64"));
    }
    if digits.len() / 4 * 3 + digits.len() % 4 * 3 / 4 > MAX_IMAGE_BYTES {
        return Err((Code::StringAboveMaxLength, "the image has more than 20 MiB"));
    }
    Ok(())
}

/// Returns the base64 digits of a checked URL that uses the alias `jpg`.
fn jpg_data(url: &str) -> Option<&str> {
    const HEAD: &str = "data:image/jpg;base64,";
    let (head, digits) = url.split_at_checked(HEAD.len())?;
    head.eq_ignore_ascii_case(HEAD).then_some(digits)
}

/// Returns whether all bytes are digits of base64.
fn all_base64(digits: &str) -> bool {
    let is_digit = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    // Each block is read to its end even after an invalid byte, because such a loop compiles to SIMD instructions.
    digits
        .as_bytes()
        .chunks(4096)
        .all(|block| block.iter().fold(0, |bad, b| bad | u8::from(!is_digit(b))) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_come_from_the_web_or_with_the_body() {
        for (good, taken_with) in [
            ("https://example.com/a.png", ImageUrls::Https),
            ("HTTPS://example.com?x=http://127.0.0.1/", ImageUrls::Https),
            ("https://127.0.0.1/a.png", ImageUrls::Any),
            ("https://example.com@127.0.0.1/a.png", ImageUrls::Any),
            ("HTTP://example.com", ImageUrls::Any),
            ("http://[::1]:80/x?y#z", ImageUrls::Any),
            ("data:image/png;base64,QUJD", ImageUrls::Data),
            ("data:image/jpeg;base64,QUI=", ImageUrls::Data),
            ("DATA:Image/WebP;Base64,QQ==", ImageUrls::Data),
            ("data:image/gif;base64,+/+/", ImageUrls::Data),
            ("data:image/jpg;base64,QUI=", ImageUrls::Data),
            ("data:image/JPG;base64,QUI=", ImageUrls::Data),
        ] {
            assert_eq!(check_url(good), Ok(taken_with), "{good}");
        }
        let long = format!("https://example.com/{}", "a".repeat(MAX_URL_BYTES));
        assert_eq!(check_url(&long).unwrap_err().0, Code::StringAboveMaxLength);
        for bad in [
            "",
            "example.com/a.png",
            "ftp://example.com/a.png",
            "file:///etc/passwd",
            "gs://bucket/a.png",
            "javascript:alert(1)",
            "https:",
            "https://",
            "https:///a.png",
            "https:example.com",
            "https://exa mple.com",
            "http://a\nb",
            "https://example.com\\@127.0.0.1/",
            " https://example.com",
            "data:",
            "data:image/png",
            "data:image/png,QUJD",
            "data:image/jpgx;base64,QUJD",
            "data:image/svg+xml;base64,QUJD",
            "data:text/plain;base64,QUJD",
            "data:image/png;charset=utf-8;base64,QUJD",
            "data:image/png;base64,",
            "data:image/png;base64,=",
            "data:image/png;base64,QUJ",
            "data:image/png;base64,QQ",
            "data:image/png;base64,Q===",
            "data:image/png;base64,QU=J",
            "data:image/png;base64,QU-_",
            "data:image/png;base64,QU\nJ",
        ] {
            assert_eq!(check_url(bad).unwrap_err().0, Code::InvalidValue, "{bad}");
        }
    }

    #[test]
    fn an_image_of_20_mib_is_the_largest() {
        // 20 MiB is not a multiple of three bytes: it has whole groups of three, and two bytes more.
        let whole = "A".repeat(MAX_IMAGE_BYTES / 3 * 4);
        let with = |last: &str| check_url(&format!("data:image/png;base64,{whole}{last}"));
        assert_eq!(with("AAA="), Ok(ImageUrls::Data));
        assert_eq!(with("AAAA").unwrap_err().0, Code::StringAboveMaxLength);
    }
}
