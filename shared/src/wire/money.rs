//! Bodies that pay or refund, from one table of members.

use super::{
    bounds::{MAX_EXTERNAL_ID_CHARS, MAX_NOTE_CHARS},
    field::{Field, Fields, Kind, setting},
};

/// A member of a body that pays or refunds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoneyField {
    PaymentId,
    Amount,
    Note,
    GroupId,
    GroupExternalId,
    Of,
    Partial,
}

impl MoneyField {
    const fn row(self) -> Field {
        match self {
            Self::PaymentId => setting(
                "payment_id",
                Kind::PaymentId { or_null: false },
                "Your own id of the payment or refund, unique in the account: it takes effect once, however often it is sent.",
            )
            .required(),
            Self::Amount => setting("amount", Kind::Paid, "Amount in US dollars.").required(),
            Self::Note => setting(
                "note",
                Kind::Line { max: MAX_NOTE_CHARS },
                "Note for people. The account's members see it.",
            ),
            Self::GroupId => setting(
                "group_id",
                Kind::Group,
                "A group whose limit changes together with the account's credit; null for none.",
            ),
            Self::GroupExternalId => setting(
                "group_external_id",
                Kind::ExternalId { max: MAX_EXTERNAL_ID_CHARS },
                "The external id of the group, instead of `group_id`; null for none.",
            ),
            Self::Of => setting(
                "of",
                Kind::PaymentId { or_null: true },
                "The payment that is refunded; null for none. It must exist.",
            ),
            Self::Partial => setting(
                "partial",
                Kind::Flag,
                "Whether to take what there is if less than `amount` is neither used nor held. The rest is the answer's `shortfall`.",
            ),
        }
    }
}

/// Members of one kind of body that pays or refunds.
pub trait PayingFields: Fields {
    fn field(self) -> MoneyField;
}

macro_rules! bodies {
    ($($(#[$doc:meta])* $body:ident [$($field:ident)+])+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub struct $body(MoneyField);

            impl Fields for $body {
                fn all() -> impl Iterator<Item = Self> {
                    [$(Self(MoneyField::$field)),+].into_iter()
                }

                fn row(self) -> Field {
                    self.0.row()
                }
            }

            impl PayingFields for $body {
                fn field(self) -> MoneyField {
                    self.0
                }
            }
        )+
    };
}

bodies! {
    /// A payment into an account.
    PaymentBody [PaymentId Amount Note GroupId GroupExternalId]
    /// A refund from an account.
    RefundBody [PaymentId Amount Of Partial Note GroupId GroupExternalId]
    /// A payment into the wallet of the group in the path.
    GroupPaymentBody [PaymentId Amount Note]
    /// A refund from the wallet of the group in the path.
    GroupRefundBody [PaymentId Amount Of Partial Note]
}
