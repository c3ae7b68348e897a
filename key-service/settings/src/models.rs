//! The choice of models in a form: all models, or only the ticked models.

use maud::{Markup, html};
use shared::wire::{MAX_MODEL_CHARS, MAX_MODELS, Value};

use key_service_page::{
    entry::{Entered, line},
    form::Fields,
};

/// Field that says whether all models may be used, or only the ticked models.
const WHICH_MODELS: &str = "which_models";
const ALL_MODELS: &str = "all";
const ONLY_THESE: &str = "only";
/// Stands for an empty list of models in the texts of a form. No setting can have such a list.
const NO_MODEL: &str = "\n";

/// Returns a form's choice as one text: empty if all models may be used, otherwise the ids in lines, or [`NO_MODEL`].
pub(crate) fn text(form: &Fields, name: &str) -> String {
    let ids = ticked(&form.all(name)).join("\n");
    match form.get(WHICH_MODELS) {
        ALL_MODELS => String::new(),
        _ if ids.is_empty() => NO_MODEL.to_owned(),
        _ => ids,
    }
}

/// Returns the field that says whether a text allows all models, with its value.
pub(crate) fn which(text: &str) -> (&'static str, String) {
    (WHICH_MODELS, if text.is_empty() { ALL_MODELS } else { ONLY_THESE }.to_owned())
}

/// Returns the ids of models in a form's values. A value is either a ticked box or a text with an id on each line.
fn ticked<'a>(values: &[&'a str]) -> Vec<&'a str> {
    values.iter().flat_map(|text| text.lines()).filter(|id| !id.trim().is_empty()).collect()
}

/// Reads the choice from its text.
pub(crate) fn read(text: &str) -> Result<Value, String> {
    if text.is_empty() {
        return Ok(Value::Null);
    }
    let mut models: Vec<String> = Vec::new();
    for id in text.lines().map(str::trim).filter(|id| !id.is_empty()) {
        let id = line(id, MAX_MODEL_CHARS)?;
        if !models.contains(&id) {
            models.push(id);
        }
    }
    match models.len() {
        0 => Err("Tick at least one model, or choose All models.".into()),
        1..=MAX_MODELS => Ok(Value::Texts(models)),
        _ => Err(format!("Choose at most {MAX_MODELS} models.")),
    }
}

/// Renders the choice between all models and some models, with a box for each model. First come the ticked models, even
/// if they are no longer offered, and then the other models. The style sheet hides the boxes while all models are
/// chosen.
pub(crate) fn boxes(
    name: &'static str,
    title: &str,
    hint: &str,
    entered: Entered<'_>,
    models: &[(String, String)],
) -> Markup {
    let ticked = ticked(&entered.all(name));
    let others = models.iter().map(|(id, _)| id.as_str()).filter(|id| !ticked.contains(id));
    let price =
        |id: &str| models.iter().find(|(model, _)| model == id).map_or("not offered", |(_, price)| price);
    let is_only = match entered.get(WHICH_MODELS) {
        "" => !ticked.is_empty(),
        chosen => chosen != ALL_MODELS,
    };
    let choice = |value: &'static str, title: &str, is_chosen: bool| {
        html! { label { input type="radio" name=(WHICH_MODELS) value=(value) checked[is_chosen]; span { (title) } } }
    };
    entered.boxes(name, title, hint, |entry| {
        html! {
            input type="hidden" name=(name) value="";
            div.which { (choice(ALL_MODELS, "All models", !is_only)) (choice(ONLY_THESE, "Only these", is_only)) }
            ul.boxes {
                @for (at, id) in ticked.iter().copied().chain(others).enumerate() {
                    li { label {
                        input type="checkbox" name=(name) value=(id) checked[at < ticked.len()] aria-invalid=[entry.invalid]
                            autofocus[at == 0 && entry.has_focus];
                        span { bdi { (id) } " " span.quiet { (price(id)) } }
                    } }
                }
            }
        }
    })
}
