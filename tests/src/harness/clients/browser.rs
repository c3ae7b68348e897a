//! A browser without scripts. It keeps cookies, follows redirects, and submits forms on pages.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::Full;

use super::client::{Answer, Http};

/// A browser that is used with one installation.
#[derive(Clone)]
pub struct Browser {
    http: Http,
    base: String,
    pub cookies: BTreeMap<String, String>,
    /// Origin that the browser sends with forms.
    pub origin: String,
    /// The form token of the last page.
    pub token: String,
    /// Additional headers of the browser's requests.
    pub headers: Vec<(&'static str, String)>,
}

impl Browser {
    pub fn at(base: &str) -> Self {
        Self {
            http: Http::new(),
            base: base.to_owned(),
            cookies: BTreeMap::new(),
            origin: base.to_owned(),
            token: String::new(),
            headers: Vec::new(),
        }
    }

    /// Opens a sign-in link on this installation, ignoring the link's host, and confirms it. Returns the final answer.
    pub async fn sign_in(&mut self, link: &str) -> Answer {
        let opened = self.open_link(link).await;
        if opened.status != 200 {
            return opened;
        }
        self.post("/dashboard/sign-in/link/use", &[("link", link.trim())]).await
    }

    /// Opens a sign-in link. The answer shows who will be signed in.
    pub async fn open_link(&mut self, link: &str) -> Answer {
        self.get("/dashboard/sign-in/link").await;
        self.post("/dashboard/sign-in/link", &[("link", link.trim())]).await
    }

    /// Opens a page, without following a redirect.
    pub async fn get(&mut self, path: &str) -> Answer {
        self.send(Method::GET, path, None).await
    }

    /// Sends a form with the token of the last page, without following a redirect.
    pub async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(fields).append_pair("token", &self.token);
        self.send(Method::POST, path, Some(form.finish())).await
    }

    pub async fn is_signed_in(&mut self) -> bool {
        match self.get("/dashboard/management-keys").await.status {
            200 => true,
            303 => false,
            other => panic!("a page answers {other}"),
        }
    }

    async fn send(&mut self, method: Method, path: &str, form: Option<String>) -> Answer {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        let cookies: Vec<String> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        request = request.header(header::COOKIE, cookies.join("; "));
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        if form.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
            if !self.origin.is_empty() {
                request = request.header(header::ORIGIN, &self.origin);
            }
        }
        let body = Full::new(Bytes::from(form.unwrap_or_default()));
        let answer = self.http.send(request.body(body).unwrap()).await;
        for cookie in answer.headers.get_all(header::SET_COOKIE) {
            self.keep(cookie.to_str().unwrap());
        }
        if let Some(token) = attribute(&answer, "name=\"token\" value=\"") {
            self.token = token;
        }
        answer
    }

    fn keep(&mut self, cookie: &str) {
        let (pair, attributes) = cookie.split_once(';').unwrap();
        let (name, value) = pair.split_once('=').unwrap();
        assert!(attributes.contains("HttpOnly") && attributes.contains("SameSite=Lax"), "{cookie}");
        if attributes.contains("Max-Age=0") {
            self.cookies.remove(name);
        } else {
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
    }
}

/// Finds the text on a page that follows `beginning`, up to the next quotation mark.
pub fn attribute(page: &Answer, beginning: &str) -> Option<String> {
    let text = std::str::from_utf8(&page.body).ok()?;
    let (_, rest) = text.split_once(beginning)?;
    rest.split('"').next().map(str::to_owned)
}
