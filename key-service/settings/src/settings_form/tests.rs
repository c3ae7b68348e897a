//! Tests of forms that are sent back unchanged, and of forms whose settings someone else has changed meanwhile.

use shared::{
    calendar::Per,
    ids::{GroupId, KeyId},
    money::NanoUsd,
    wire::{GroupField, KeyField, Limit, Raise},
};

use super::*;
use domain::{
    group::GroupPatch,
    key::{ApiKey, KeyPatch},
    ledger::BoundsPatch,
    settings::MetadataPatch,
};
use key_service_page::zone::Zone;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
/// When raises end. This is not a whole second.
const LATER: Timestamp = Timestamp::from_millis(1_700_000_060_250);

/// Sends a form as a browser would: inputs, chosen options, and texts with CR LF line breaks.
fn sent(form: &Markup) -> Fields {
    let html = form.clone().into_string();
    let attribute = |tag: &str, name: &str| {
        let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
        Some(unescaped(rest.split('"').next()?))
    };
    let mut fields = Vec::new();
    for piece in html.split('<').skip(1) {
        let (tag, _) = piece.split_once('>').unwrap();
        let Some(name) = attribute(tag, "name") else { continue };
        let is_box = tag.contains(" type=\"checkbox\"") || tag.contains(" type=\"radio\"");
        if is_box && !tag.contains(" checked") {
            continue;
        }
        let (_, behind) = html.split_once(&format!("<{tag}>")).unwrap();
        let value = if tag.starts_with("input") {
            attribute(tag, "value").unwrap_or_default()
        } else if tag.starts_with("textarea") {
            unescaped(behind.split("</textarea>").next().unwrap()).replace('\n', "\r\n")
        } else if tag.starts_with("select") {
            let options: Vec<&str> =
                behind.split("</select>").next().unwrap().split("<option").skip(1).collect();
            let chosen = options.iter().find(|option| option.contains(" selected")).unwrap_or(&options[0]);
            attribute(chosen, "value").unwrap()
        } else {
            continue;
        };
        fields.push((name, value));
    }
    Fields::of(fields)
}

fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

fn group() -> Group {
    Group::new(GroupId::new(NOW, [7; 10]), NOW)
}

fn offered() -> Offered {
    Offered {
        groups: vec![group()],
        has_all_groups: true,
        models: vec![("Model Flash".into(), "$0.10 in, $0.40 out".into())],
        now: NOW,
    }
}

/// Renders the form for an object with these settings.
fn form<F: Table>(present: &Fields) -> Markup {
    edit_fields::<F>(Entered::new(present), present, &offered())
}

/// Returns every combination of lifetime limits, windows, rates and models.
fn bounds() -> Vec<BoundsPatch> {
    let mut all = Vec::new();
    let lifetimes = [None, Some(0), Some(1), Some(25_000_000_000), Some(1_234_567_890_123)];
    let lists = [None, Some(vec!["Model Flash"]), Some(vec!["a/b <\"&'>", "Zoë’s model", "  padded  "])];
    for (lifetime, models) in
        lifetimes.into_iter().flat_map(|limit| lists.iter().map(move |list| (limit, list)))
    {
        for chosen in 0..1_u32 << Per::ALL.len() {
            let is_chosen = |(n, _): &(usize, Per)| chosen >> n & 1 == 1;
            // The windows are not sorted by length.
            let windows = Per::ALL.into_iter().enumerate().filter(is_chosen).rev();
            let raised =
                Some(Raise { amount: NanoUsd::from_usd(2_000), until: LATER }).filter(|_| chosen % 3 == 0);
            let windows: Vec<_> = windows
                .map(|(n, per)| Limit {
                    raised: raised.filter(|_| n % 2 == 0),
                    ..Limit::new(NanoUsd::from_nanos(35_000_000_001 << n), per)
                })
                .collect();
            for rate in [None, Some(60)] {
                all.push(BoundsPatch {
                    limit: Some(lifetime.map(NanoUsd::from_nanos)),
                    limit_raised: Some(raised.filter(|_| lifetime.is_some())),
                    windows: Some(Vec::clone(&windows)),
                    models: Some(models.as_ref().map(|list| list.iter().map(ToString::to_string).collect())),
                    requests_per_minute: Some(rate),
                    tokens_per_minute: Some(rate.map(|rate| rate * 1_000_000)),
                    max_in_flight: Some(rate.filter(|_| lifetime.is_some())),
                });
            }
        }
    }
    all
}

fn metadata() -> MetadataPatch {
    MetadataPatch {
        changes: [("team".to_owned(), Some("search".to_owned()))].into(),
        ..MetadataPatch::default()
    }
}

fn key(patch: &KeyPatch) -> ApiKey {
    ApiKey::new(KeyId::new(NOW, [1; 10]), String::new(), NOW).with(patch, NOW)
}

fn texts(key: &ApiKey) -> Fields {
    entered(|field: KeyField| key.value(field, NOW))
}

#[test]
fn the_form_of_a_key_or_a_group_sent_back_unchanged_changes_nothing() {
    let expiries = ["2999-12-31T23:59:00Z", "2027-12-31T23:59:59Z", "2027-12-31T23:59:59.250Z"];
    let expiries: Vec<_> = std::iter::once(None).chain(expiries.map(Timestamp::parse)).collect();
    for (n, bounds) in bounds().into_iter().enumerate() {
        let of_key = KeyPatch {
            label: Some([" Customer <A>", ""][n % 2].to_owned()),
            expires_at: Some(expiries[n % expiries.len()]),
            group: Some([None, Some(group().id)][n / 2 % 2]),
            disabled: Some(n % 2 == 1),
            bounds: bounds.clone(),
            metadata: metadata(),
        };
        let key = key(&of_key);
        let back = sent(&form::<KeyField>(&texts(&key)));
        let edit = read_edit::<KeyPatch>(&back, &texts(&key)).unwrap();
        assert_eq!(edit.patch, KeyPatch::default(), "{of_key:?} came back as {back:?}");
        let of_group = GroupPatch {
            name: Some("Team".into()),
            external_id: Some(Some("c101".into())),
            parent: Some([None, Some(group().id)][n % 2]),
            bounds,
            ..GroupPatch::default()
        };
        let team = Group::new(GroupId::new(NOW, [8; 10]), NOW).with(&of_group, NOW);
        let present = entered(|field: GroupField| team.value(field, NOW));
        let edit = read_edit::<GroupPatch>(&sent(&form::<GroupField>(&present)), &present).unwrap();
        assert_eq!(edit.patch, GroupPatch::default(), "{of_group:?}");
    }
}

#[test]
fn a_form_changes_what_was_changed_in_it_alone() {
    let limits = |limit, windows: &[(Per, i64)]| BoundsPatch {
        limit: Some(limit),
        windows: Some(windows.iter().map(|(per, usd)| Limit::new(NanoUsd::from_usd(*usd), *per)).collect()),
        ..BoundsPatch::default()
    };
    let before =
        key(&KeyPatch { bounds: limits(None, &[(Per::Month, 35), (Per::Day, 2)]), ..KeyPatch::default() });
    let opened = sent(&form::<KeyField>(&texts(&before)));
    let change = |form: &Fields, of: &[(&str, &str)], present: &ApiKey| {
        let form = of.iter().fold(form.clone(), |form, (name, text)| form.with(name, (*text).to_owned()));
        let edit = read_edit::<KeyPatch>(&form, &texts(present)).unwrap();
        let asked = ask::<KeyField>(
            &form,
            &texts(present),
            &edit.overtaken,
            Reader { groups: &[], zone: &Zone::utc() },
        );
        (edit.patch, asked)
    };
    let labelled = KeyPatch { label: Some("Ann".into()), ..KeyPatch::default() };
    let (patch, asked) = change(&opened, &[("label", "Ann")], &before);
    assert!(patch == labelled && asked.is_none(), "{patch:?}");
    // Someone else has raised the limits in the meantime. A change of the label does not undo this.
    let raised = key(&KeyPatch {
        bounds: limits(Some(NanoUsd::from_usd(90)), &[(Per::Month, 70)]),
        ..KeyPatch::default()
    });
    let (patch, asked) = change(&opened, &[("label", "Ann")], &raised);
    assert!(patch == labelled && asked.is_none(), "{patch:?}");
    // If both change the same limits, the form shows their current values and asks. If the form is sent again, it
    // overwrites them.
    let (_, asked) = change(&opened, &[("limit", "40")], &raised);
    let (texts_now, fault) = asked.unwrap();
    assert_eq!(fault.field, "limit");
    assert!(
        fault.says.contains("Limits by window: $2 a day and $35 a month → $70 a month"),
        "{}",
        fault.says
    );
    let again =
        sent(&edit_fields::<KeyField>(Entered::refused(&texts_now, &fault), &texts(&raised), &offered()));
    let (patch, asked) = change(&again, &[], &raised);
    assert!(asked.is_none(), "{patch:?}");
    let windows = limits(None, &[(Per::Day, 2), (Per::Month, 40)]).windows;
    assert_eq!(
        patch.bounds,
        BoundsPatch { windows, ..BoundsPatch::default() },
        "the new lifetime limit stays"
    );
    // If both make the same change, the form does not ask.
    let (_, asked) = change(
        &opened,
        &[("limit", "70"), ("limit_2", "")],
        &key(&KeyPatch { bounds: limits(None, &[(Per::Month, 70)]), ..KeyPatch::default() }),
    );
    assert!(asked.is_none());
    // A form without the texts that it showed changes everything that it contains.
    let bare = Fields::of([("limit", "5".to_owned())]);
    assert_eq!(change(&bare, &[], &before).0.bounds, BoundsPatch::of_limit(Some(NanoUsd::from_usd(5))));
}

#[test]
fn a_raise_is_set_changed_and_taken_away_in_the_row_of_its_limit() {
    let usd = NanoUsd::from_usd;
    let raise = |amount| Some(Raise { amount: usd(amount), until: LATER });
    let windows = |raised| vec![Limit { raised, ..Limit::new(usd(2), Per::Day) }];
    let before = |raised, of_day| {
        let (limit, limit_raised) = (Some(Some(usd(35))), Some(raised));
        let bounds =
            BoundsPatch { limit, limit_raised, windows: Some(windows(of_day)), ..BoundsPatch::default() };
        key(&KeyPatch { bounds, ..KeyPatch::default() })
    };
    let change = |present: &ApiKey, of: &[(&str, &str)]| {
        let form = sent(&form::<KeyField>(&texts(present)));
        let form = of.iter().fold(form, |form, (name, text)| form.with(name, (*text).to_owned()));
        read_edit::<KeyPatch>(&form, &texts(present)).map(|edit| edit.patch.bounds)
    };
    let (bare, raised) = (before(None, None), before(raise(70), raise(9)));
    let until = limits::instant(LATER);
    let of_limit = BoundsPatch { limit_raised: Some(raise(70)), ..BoundsPatch::default() };
    assert_eq!(change(&bare, &[("raise", "70"), ("until", &until)]), Ok(of_limit));
    let of_day = BoundsPatch { windows: Some(windows(raise(9))), ..BoundsPatch::default() };
    assert_eq!(change(&bare, &[("raise_2", "$9.00"), ("until_2", &until)]), Ok(of_day));
    let gone = BoundsPatch { limit_raised: Some(None), ..BoundsPatch::default() };
    assert_eq!(change(&raised, &[("raise", ""), ("until", "")]), Ok(gone));
    // A raise ends when its limit is set, so the form sets the raise again.
    let both = BoundsPatch { limit_raised: Some(raise(70)), ..BoundsPatch::of_limit(Some(usd(40))) };
    assert_eq!(change(&raised, &[("limit", "40")]), Ok(both));
    let fault = |of: &[(&str, &str)]| change(&bare, of).unwrap_err().field;
    assert_eq!(fault(&[("raise", "70")]), "until");
    assert_eq!(fault(&[("until", &until)]), "raise");
    assert_eq!(fault(&[("raise", "much"), ("until", &until)]), "raise");
    assert_eq!(fault(&[("raise_2", "9"), ("until_2", "soon")]), "until_2");
    assert_eq!(fault(&[("limit_2", ""), ("raise_2", "9"), ("until_2", &until)]), "limit_2");
    let present = texts(&raised);
    let copy = limits::without_raises(&present);
    assert!(present.has("raise_2") && !copy.has("raise_2") && !copy.has("until") && copy.has("limit_2"));
    let new = new_fields::<KeyField>(Entered::new(&Fields::default()), &offered()).into_string();
    assert!(!new.contains("name=\"raise\""), "a new key is not raised: {new}");
}

#[test]
fn a_limit_is_raised_alone_and_as_often_as_asked_to_the_same_amount() {
    let usd = NanoUsd::from_usd;
    let windows = |raised: Option<i64>| {
        let raised = raised.map(|amount| Raise { amount: usd(amount), until: LATER });
        vec![Limit { raised, ..Limit::new(usd(2), Per::Day) }]
    };
    let terms = |resets, percent| RaiseTerms { resets, percent, until: LATER };
    let raise = |present: &ApiKey, terms: &RaiseTerms| raise::<KeyPatch>(&texts(present), terms);
    for models in [None, Some(vec!["a".to_owned(), "b".to_owned()])] {
        let with = |raised| BoundsPatch {
            windows: Some(windows(raised)),
            models: Some(models.clone()),
            ..BoundsPatch::default()
        };
        let present = |raised| key(&KeyPatch { bounds: with(raised), ..KeyPatch::default() });
        let patch = KeyPatch {
            bounds: BoundsPatch { windows: Some(windows(Some(4))), ..BoundsPatch::default() },
            ..KeyPatch::default()
        };
        for before in [None, Some(3)] {
            assert_eq!(raise(&present(before), &terms("day", 200)), Ok(patch.clone()), "{models:?}");
        }
        let again = raise(&present(Some(4)), &terms("day", 200)).unwrap();
        assert!([KeyPatch::default(), patch].contains(&again), "{again:?}");
        assert_eq!(raise(&present(Some(5)), &terms("day", 200)), Err(Unraised::AsHigh));
        assert_eq!(raise(&present(None), &terms("week", 200)), Err(Unraised::NoLimit));
    }
}

#[test]
fn a_list_of_models_is_boxes_and_those_that_are_not_offered_stay() {
    let models = |list: &[&str]| BoundsPatch {
        models: Some(Some(list.iter().map(ToString::to_string).collect())),
        ..BoundsPatch::default()
    };
    let before = key(&KeyPatch { bounds: models(&["gone"]), ..KeyPatch::default() });
    let page = form::<KeyField>(&texts(&before));
    let html = page.clone().into_string();
    assert!(html.contains("gone</bdi> <span class=\"quiet\">not offered"), "{html}");
    assert!(html.contains("Model Flash</bdi> <span class=\"quiet\">$0.10 in, $0.40 out"), "{html}");
    let opened = sent(&page);
    let edit = |which: &str, values: &[&str]| {
        let boxes = values.iter().map(|value| ("models", (*value).to_owned()));
        let boxes = Fields::of(boxes.chain([("which_models", which.to_owned())]));
        let edit = read_edit::<KeyPatch>(&opened.clone().replaced_by(boxes), &texts(&before));
        edit.map(|edit| edit.patch.bounds)
    };
    let all = BoundsPatch { models: Some(None), ..BoundsPatch::default() };
    assert_eq!(edit("only", &["", "gone", "Model Flash"]), Ok(models(&["gone", "Model Flash"])));
    assert_eq!(edit("only", &["", "gone"]), Ok(BoundsPatch::default()));
    assert_eq!(edit("all", &[""]), Ok(all.clone()));
    assert_eq!(edit("all", &["", "gone"]), Ok(all), "hidden boxes may have a tick");
    for which in ["only", "", "x"] {
        let fault = edit(which, &[""]).unwrap_err();
        assert_eq!(fault.field, "models", "no tick is not all models: {which}");
        assert!(fault.says.contains("All models"), "{}", fault.says);
    }
}

#[test]
fn a_form_says_whether_all_models_may_be_used_and_keeps_it_when_it_is_refused() {
    let chosen = |html: &str| {
        ["all", "only"]
            .map(|which| html.contains(&format!("name=\"which_models\" value=\"{which}\" checked")))
    };
    let list = |list: Option<&[&str]>| {
        let models = list.map(|list| list.iter().map(ToString::to_string).collect());
        texts(&key(&KeyPatch {
            bounds: BoundsPatch { models: Some(models), ..BoundsPatch::default() },
            ..KeyPatch::default()
        }))
    };
    assert_eq!(chosen(&form::<KeyField>(&list(None)).into_string()), [true, false]);
    assert_eq!(chosen(&form::<KeyField>(&list(Some(&["gone"]))).into_string()), [false, true]);
    let refused =
        Fields::of([("which_models", "only"), ("models", "")].map(|(name, text)| (name, text.to_owned())));
    let fault = read::<KeyPatch>(&refused).unwrap_err();
    let page = new_fields::<KeyField>(Entered::refused(&refused, &fault), &offered()).into_string();
    assert_eq!(chosen(&page), [false, true]);
    assert!(page.contains("id=\"models-fault\" role=\"alert\">Tick at least one model"), "{page}");
    let made = read::<KeyPatch>(&refused.with("which_models", "all".into())).unwrap();
    assert_eq!(made.bounds.models, Some(None));
}

#[test]
fn whether_a_key_is_enabled_is_no_field_of_a_form() {
    let present = texts(&key(&KeyPatch::default()));
    let new = new_fields::<KeyField>(Entered::new(&Fields::default()), &offered()).into_string();
    for form in [form::<KeyField>(&present).into_string(), new] {
        assert!(!form.contains("name=\"disabled\"") && form.contains("name=\"expires_at\""), "{form}");
    }
}

#[test]
fn an_undone_change_leaves_everything_as_it_was_and_keeps_what_others_changed() {
    let models = |models: &[&str]| Some(Some(models.iter().map(ToString::to_string).collect()));
    let patch = |label: &str, bounds| KeyPatch { label: Some(label.into()), bounds, ..KeyPatch::default() };
    let usd = |usd| Some(Some(NanoUsd::from_usd(usd)));
    let per_day = |usd| Some(vec![Limit::new(NanoUsd::from_usd(usd), Per::Day)]);
    let all = patch("a", BoundsPatch { limit: usd(5), windows: per_day(1), ..BoundsPatch::default() });
    let some = patch("b", BoundsPatch { models: models(&["m"]), limit: usd(7), ..BoundsPatch::default() });
    for (before, after) in [(&all, &some), (&some, &all)] {
        let [before, after] = [before, after].map(|patch| texts(&key(patch)));
        let form = undo::<KeyField>(&before, &after).unwrap();
        let edit = read_edit::<KeyPatch>(&form, &after).unwrap();
        assert!(edit.overtaken.is_empty());
        let undone =
            texts(&key(if before.get("label") == "a" { &some } else { &all }).with(&edit.patch, NOW));
        assert_eq!(undone, before);
        // Someone else has changed the label since.
        let later = after.clone().with("label", "c".into());
        assert_eq!(read_edit::<KeyPatch>(&form, &later).unwrap().overtaken.len(), 1);
    }
    let present = texts(&key(&all));
    assert!(undo::<KeyField>(&present, &present).is_none());
}
