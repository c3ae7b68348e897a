use shared::{
    ids::{DepositId, GroupId},
    wire::{EVENT_TYPES, OPERATOR_EVENT_TYPES, Value},
};

use super::*;
use crate::{ledger::histories::key, payment::PaymentId};

const AT: Timestamp = Timestamp::from_millis(1_795_400_000_123);

fn act() -> Act {
    let name = "deploy \"it\"\n".to_owned();
    let actor = Actor::ManagementKey { id: ManagementKeyId::new(AT, [1; 10]), name };
    Act { actor, at: AT, chance: [7; 10] }
}

/// Returns an event of each type about payments and refunds.
fn payments(amount: NanoUsd, shortfall: NanoUsd) -> [EventKind; 4] {
    let (deposit_id, group_id) = (DepositId::new(AT, [4; 10]), Some(GroupId::new(AT, [5; 10])));
    let (note, id) = ("Invoice 7".to_owned(), |text| PaymentId::parse(text));
    let paid =
        PaymentMade { deposit_id, amount, note: String::new(), payment_id: id("pay_8"), group_id: None };
    let refunded = RefundMade {
        deposit_id,
        amount,
        shortfall,
        of: None,
        note: "too much".into(),
        payment_id: id("re_8"),
        group_id: None,
    };
    [
        EventKind::GroupPaid(paid.clone()),
        EventKind::GroupRefunded(refunded.clone()),
        EventKind::CreditAdded(PaymentMade { note, group_id, ..paid }),
        EventKind::CreditRefunded(RefundMade { of: id("pay_7"), group_id, ..refunded }),
    ]
}

#[test]
fn every_type_of_event_reads_back_what_it_writes() {
    let (management_key_id, member_id) = (ManagementKeyId::new(AT, [2; 10]), MemberId::new(AT, [3; 10]));
    let operator_key_id = OperatorKeyId::new(AT, [8; 10]);
    let (amount, used) = (NanoUsd::from_nanos(9_000_000_000_000_001), NanoUsd::from_nanos(1));
    let threshold = |bound| Threshold { bound, percent: 95, amount, used };
    let change = |field, before: &str, after: &str| {
        Change::new(field, &Value::Text(before.into()), &Value::Text(after.into()))
    };
    let changes =
        vec![change("label", "", "{\"a\": [1]}"), Change::new("limit", &Value::Null, &Value::Amount(amount))];
    let name = || "Ann".to_owned();
    let [group_paid, group_refunded, credit_added, credit_refunded] = payments(amount, used);
    let kinds = [
        EventKind::AccountCreated { name: name() },
        EventKind::AccountUpdated { changes: changes.clone() },
        EventKind::AccountSuspended { reason: "unpaid".into() },
        EventKind::AccountRestored {},
        EventKind::AccountClosed {},
        EventKind::KeyCreated { changes: changes.clone() },
        EventKind::KeyUpdated { changes: changes.clone() },
        EventKind::KeyRotated { previous_key_expires_at: Some(AT) },
        EventKind::KeyRevoked {},
        EventKind::KeyThresholdReached(threshold(MoneyBound::Limit)),
        EventKind::KeyLimitReached(threshold(MoneyBound::Hour)),
        EventKind::GroupCreated { changes: Vec::new() },
        EventKind::GroupUpdated { changes },
        EventKind::GroupArchived {},
        group_paid,
        group_refunded,
        EventKind::GroupThresholdReached(threshold(MoneyBound::Week)),
        EventKind::GroupLimitReached(threshold(MoneyBound::Month)),
        credit_added,
        credit_refunded,
        EventKind::CreditThresholdReached(threshold(MoneyBound::Credit)),
        EventKind::CreditExhausted(threshold(MoneyBound::Credit)),
        EventKind::ManagementKeyCreated {
            management_key_id,
            name: name(),
            scope: Some("read".into()),
            group_id: Some(GroupId::new(AT, [5; 10])),
            expires_at: Some(AT),
        },
        EventKind::ManagementKeyRevoked { management_key_id, name: name() },
        EventKind::MemberInvited {
            member_id,
            name: name(),
            role: "lead".into(),
            group_id: Some(GroupId::new(AT, [5; 10])),
        },
        EventKind::MemberRoleChanged {
            member_id,
            name: name(),
            role: "lead".into(),
            group_id: Some(GroupId::new(AT, [5; 10])),
            previous_role: "viewer".into(),
            previous_group_id: None,
        },
        EventKind::MemberRemoved { member_id, name: name() },
        EventKind::MemberSignedIn { member_id },
        EventKind::MemberSecondFactorEnabled { member_id, name: name() },
        EventKind::MemberSecondFactorRemoved { member_id, name: name() },
        EventKind::WebhookDisabled {
            webhook_id: WebhookId::new(AT, [6; 10]),
            url: "https://example.com".into(),
            reason: "failing".into(),
        },
        EventKind::AlertRaised {
            alert_id: AlertId::new(AT, [7; 10]),
            label: "Budgets".into(),
            rule: "refused".into(),
            title: name(),
            text: "Raise the limit.".into(),
            url: Some("https://example.com/dashboard".into()),
        },
        EventKind::OperatorKeyCreated {
            operator_key_id,
            name: name(),
            scopes: vec!["read".into()],
            expires_at: Some(AT),
            networks: Some(vec!["10.0.0.0/8".into()]),
            max_payment: amount,
        },
        EventKind::OperatorKeyRotated {
            operator_key_id,
            name: name(),
            new_operator_key_id: OperatorKeyId::new(AT, [9; 10]),
            previous_key_expires_at: AT,
        },
        EventKind::OperatorKeyRevoked { operator_key_id, name: name() },
    ];
    assert!(kinds.iter().map(EventKind::as_str).eq(EVENT_TYPES.into_iter().chain(OPERATOR_EVENT_TYPES)));
    for kind in kinds {
        let event = act().event(0, Some(key(1)), Some(GroupId::new(AT, [5; 10])), kind);
        assert_eq!(Event::from_json(&event.to_json()).as_ref(), Some(&event));
        assert_eq!(event.object().r#type, event.kind.as_str());
    }
}

#[test]
fn an_event_is_written_as_the_contract_has_it() {
    let threshold = Threshold {
        bound: MoneyBound::Day,
        percent: 80,
        amount: NanoUsd::from_usd(5),
        used: NanoUsd::from_nanos(4_000_000_001),
    };
    let event = Act { actor: Actor::System, ..act() }.event(
        0,
        Some(key(1)),
        None,
        EventKind::KeyThresholdReached(threshold),
    );
    let (id, of) = (event.id, key(1));
    assert_eq!(
        event.to_json(),
        format!(r#"{{"id":"{id}","object":"event","type":"key.threshold_reached","created_at":"{AT}","#)
            + r#""actor":{"type":"system","id":null,"name":null},"#
            + &format!(
                r#""key_id":"{of}","group_id":null,"data":{{"bound":"day","percent":80,"amount":5,"used":4.000000001}}}}"#
            )
    );
}

#[test]
fn events_of_one_act_have_different_ids_and_the_same_ids_each_time() {
    let ids: Vec<_> = (0..3).map(|n| act().event(n, None, None, EventKind::KeyRevoked {}).id).collect();
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
    assert_eq!(ids[2], act().event(2, None, None, EventKind::KeyRevoked {}).id);
}

#[test]
fn a_long_value_of_a_change_is_cut_and_says_so() {
    let models = |n: usize| Value::Texts((0..n).map(|n| format!("\u{1f511}\"{n}\\").repeat(20)).collect());
    let short = Change::new("models", &Value::Null, &models(2));
    assert_eq!(short.after, json(&models(2)));
    for n in [6, 7, 64] {
        let (whole, change) = (json(&models(n)), Change::new("models", &models(n), &Value::Null));
        assert!(whole.len() > MAX_CHANGE_BYTES && change.before.len() <= MAX_CHANGE_BYTES, "{n}");
        assert!(
            change.before.len() > MAX_CHANGE_BYTES - 8,
            "the value fills the available space: {}",
            change.before.len()
        );
        let cut: serde_json::Value = serde_json::from_str(&change.before).unwrap();
        assert_eq!((&cut["cut"], &cut["bytes"]), (&true.into(), &whole.len().into()));
        assert!(whole.starts_with(cut["begins"].as_str().unwrap()));
        let event = act().event(0, None, None, EventKind::GroupUpdated { changes: vec![change] });
        assert_eq!(Event::from_json(&event.to_json()), Some(event));
    }
    let text = |chars| Change::new("name", &Value::Text("x".repeat(chars)), &Value::Null).before;
    assert_eq!(text(MAX_CHANGE_BYTES - 2).len(), MAX_CHANGE_BYTES);
    assert!(text(MAX_CHANGE_BYTES - 1).starts_with(r#"{"cut":true,"bytes":1025,"begins":"\"xx"#));
}
