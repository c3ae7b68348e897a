//! The style sheet, the script and the icons, which are compiled into the program. Their names contain a hash, so
//! browsers may cache them for a year.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use domain::digest::Digest;
use http::{StatusCode, header};

pub(crate) struct Asset {
    pub path: String,
    content_type: &'static str,
    content: &'static [u8],
}

pub(crate) static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("dashboard", "css", "text/css; charset=utf-8", include_bytes!("assets/dashboard.css"))
});
/// The script adds copy buttons, local times, chart values at the pointer, and refreshing. All pages except *Try it*
/// also work without the script.
pub(crate) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("dashboard", "js", "text/javascript; charset=utf-8", include_bytes!("assets/dashboard.js"))
});
pub(crate) static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_bytes!("assets/icon.svg")));
/// Icon for home screens, which do not accept SVG.
pub(crate) static HOME_SCREEN_ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "png", "image/png", include_bytes!("assets/icon.png")));

impl Asset {
    fn new(name: &str, extension: &str, content_type: &'static str, content: &'static [u8]) -> Self {
        let digest = Digest::of(content);
        let [a, b, c, d, ..] = *digest.as_bytes();
        let hash = u32::from_be_bytes([a, b, c, d]);
        Self { path: format!("/dashboard/assets/{name}-{hash:08x}.{extension}"), content_type, content }
    }
}

/// Answers with the asset of this name, or with 404. A name from before an upgrade is answered with 404 too, which is
/// solved by reloading the page.
pub fn answer(name: &str) -> Response {
    let named = |asset: &&&LazyLock<Asset>| asset.path.rsplit('/').next() == Some(name);
    let Some(asset) = [&STYLE, &SCRIPT, &ICON, &HOME_SCREEN_ICON].iter().find(named).copied() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, asset.content_type),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, asset.content).into_response()
}
