//! The form for a new operator key, and its faults.

use std::time::Duration;

use key_service_management::{
    Error,
    operator_keys::{DEFAULT_MAX_PAYMENT, MAX_NETWORKS, OperatorKeyRefused, OperatorKeySettings},
};
use key_service_page::{
    entry::{Entered, Fault},
    failure::Failure,
    form::Fields,
    frame::hidden,
    operator::Operator,
    second_factor::code_field,
    show::usd,
};
use maud::{Markup, html};
use shared::{
    money::NanoUsd,
    network::{Network, NotANetwork},
    text::{is_name, sentence},
    time::Timestamp,
    wire::OperatorScope,
};

use crate::layout::KEYS;

/// Maximum length of a key's name. The command has the same limit.
const MAX_NAME_CHARS: usize = 80;
/// Maximum length of the list of networks: several times what the maximum number of networks needs.
const MAX_NETWORKS_CHARS: usize = 1_000;
/// Lifetime of a key that the form proposes.
const PROPOSED_LIFE: Duration = Duration::from_hours(365 * 24);

/// Fields of the form before anything was entered: a key that lives for a year.
pub(super) fn proposed(now: Timestamp) -> Fields {
    let end = now.plus(PROPOSED_LIFE).to_string();
    let minutes = end.get(.."2027-12-31T23:59".len()).unwrap_or_default().to_owned();
    Fields::of([("expires_at", minutes), ("max_payment", DEFAULT_MAX_PAYMENT.to_string())])
}

pub(super) fn form(operator: &Operator, entered: Entered<'_>) -> Markup {
    let networks = "Addresses or networks such as 203.0.113.0/24, separated by blanks. Leave empty for any.";
    html! {
        form.stack.card method="post" action=(KEYS) {
            (hidden(operator))
            (entered.line("name", "Name", "", MAX_NAME_CHARS))
            (entered.boxes("scopes", "May", "At least one.", |entry| html! {
                @for (scope, does) in SCOPES {
                    label.box {
                        input type="checkbox" name=(entry.name) value=(scope.as_str())
                            checked[entered.all(entry.name).contains(&scope.as_str())] aria-invalid=[entry.invalid];
                        " " (does)
                    }
                }
            }))
            (entered.instant("expires_at", "Expires", "Leave empty to never expire.", &[]))
            (entered.line("networks", "Networks", networks, MAX_NETWORKS_CHARS))
            (entered.line("max_payment", "Largest payment (USD)", "For scope credit.", 30))
            (code_field(entered, "Six digits from your app, or a recovery code."))
            div.buttons { button.primary { "Create operator key" } }
        }
    }
}

/// Every scope with its explanation.
const SCOPES: [(OperatorScope, &str); 4] = [
    (OperatorScope::Read, "read: reads everything, changes nothing"),
    (OperatorScope::Accounts, "accounts: manages accounts, and everything in them but credit"),
    (OperatorScope::Credit, "credit: pays into accounts, and refunds"),
    (OperatorScope::Catalogue, "catalogue: changes the catalogue of models"),
];

pub(super) fn read(form: &Fields) -> Result<OperatorKeySettings, Fault> {
    let name = form.get("name").trim();
    if !is_name(name, MAX_NAME_CHARS) {
        return Err(Fault::of("name", format!("Enter 1 to {MAX_NAME_CHARS} visible characters.")));
    }
    let scopes: Option<Vec<OperatorScope>> =
        form.all("scopes").into_iter().map(OperatorScope::parse).collect();
    let scopes = scopes.filter(|scopes| !scopes.is_empty());
    let scopes = scopes.ok_or_else(|| Fault::of("scopes", "Choose at least one."))?;
    let expires_at = form.filled("expires_at").map(Timestamp::parse);
    if expires_at == Some(None) {
        return Err(Fault::of("expires_at", "Enter a date and time, such as 2027-12-31T23:59."));
    }
    let networks = form.get("networks").split([' ', ',', '\t']).filter(|text| !text.is_empty());
    let networks: Result<Vec<Network>, NotANetwork> = networks.map(str::parse).collect();
    let networks = networks.map_err(|reason| Fault::of("networks", format!("Each {reason}.")))?;
    if networks.len() > MAX_NETWORKS {
        return Err(Fault::of("networks", format!("Enter at most {MAX_NETWORKS} networks.")));
    }
    let networks = Some(networks).filter(|networks| !networks.is_empty());
    let most = form.get("max_payment").trim().trim_start_matches('$').replace(',', "");
    let max_payment = NanoUsd::parse(&most).ok().filter(|most| (NanoUsd::ZERO..=NanoUsd::MAX).contains(most));
    let max_payment = max_payment.ok_or_else(|| {
        let says = format!("Enter an amount from {} to {}.", usd(NanoUsd::ZERO), usd(NanoUsd::MAX));
        Fault::of("max_payment", says)
    })?;
    Ok(OperatorKeySettings {
        name: name.to_owned(),
        scopes,
        expires_at: expires_at.flatten(),
        networks,
        max_payment,
    })
}

/// Turns the refusal of a key into a fault at the field that caused it.
pub(super) fn fault(error: Error<OperatorKeyRefused>) -> Result<Fault, Failure> {
    let Error::Refused(refused) = error else { return Err(error.into()) };
    let field = match refused {
        OperatorKeyRefused::NoScope => "scopes",
        OperatorKeyRefused::TooManyNetworks => "networks",
        OperatorKeyRefused::BadPayment => "max_payment",
        OperatorKeyRefused::TooMany => "name",
        OperatorKeyRefused::NotFound | OperatorKeyRefused::Ended | OperatorKeyRefused::LongGrace => {
            return Err(Error::Refused(refused).into());
        }
    };
    Ok(Fault::of(field, sentence(&refused.to_string())))
}
