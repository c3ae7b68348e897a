//! Rights of management keys, members and operator keys, checked for each request.

use std::{net::IpAddr, time::Duration};

use minicbor::{Decode, Encode};
use serde::Serialize;
use shared::{ids::GroupId, money::NanoUsd, network::Network, time::Timestamp, wire::OperatorScope};

use crate::ledger::GroupChain;

/// A management key's last use is recorded at most this often, so that reads rarely cause a write.
pub const USE_NOTED_EVERY: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
#[serde(rename_all = "snake_case")]
#[cbor(index_only)]
pub enum Scope {
    #[default]
    #[n(0)]
    Full,
    #[n(1)]
    Read,
}

shared::names! { Scope: Full = "full", Read = "read" }

/// Rights of a management key or member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Access {
    #[n(0)]
    pub scope: Scope,
    /// Limits the rights to the API keys of this group and its child groups; `None` for the whole account.
    #[n(1)]
    pub group: Option<GroupId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The account as a whole: money, groups with their bounds, events and webhooks.
    Account,
    /// API keys and bills within the caller's reach.
    Keys,
    /// An API key, or a bill of an API key, in this group with this parent.
    Key(GroupChain),
}

/// Why a management key or member may not make a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forbidden {
    /// The caller may only read.
    ReadOnly,
    /// The caller is limited to the API keys of a group.
    KeysOfGroupOnly,
    /// The object is outside the caller's group. It is reported as unknown, like an object in another account.
    OutOfReach,
}

/// Decides whether a management key or member with these rights may make a request.
pub fn may(access: Access, effect: Effect, subject: Subject) -> Result<(), Forbidden> {
    if (access.scope, effect) == (Scope::Read, Effect::Write) {
        return Err(Forbidden::ReadOnly);
    }
    let Some(group) = access.group else { return Ok(()) };
    match subject {
        Subject::Account => Err(Forbidden::KeysOfGroupOnly),
        Subject::Keys => Ok(()),
        Subject::Key(groups) if groups.contains(&Some(group)) => Ok(()),
        Subject::Key(_) => Err(Forbidden::OutOfReach),
    }
}

/// Rights of an operator key. They never change; a key with other rights is another key.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct OperatorRights {
    /// Sorted, without duplicates.
    #[n(0)]
    pub scopes: Vec<OperatorScope>,
    /// Networks that the key works from; `None` for any.
    #[n(1)]
    pub networks: Option<Vec<Network>>,
    /// The largest payment that the key may make.
    #[n(2)]
    pub max_payment: NanoUsd,
}

/// Why an operator key may not make a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorForbidden {
    /// The key does not work from this address.
    Network,
    /// The route needs a scope that the key does not have.
    Scope,
}

impl OperatorRights {
    /// Decides whether a key with these rights may make a request from an address, on a route for any of these scopes.
    /// A key with networks is refused if the address is unknown.
    pub fn may(&self, from: Option<IpAddr>, scopes: &[OperatorScope]) -> Result<(), OperatorForbidden> {
        let from = from.map(|address| address.to_canonical());
        let is_inside = |networks: &Vec<Network>| {
            from.is_some_and(|address| networks.iter().any(|network| network.contains(address)))
        };
        if !self.networks.as_ref().is_none_or(is_inside) {
            return Err(OperatorForbidden::Network);
        }
        let has_scope = scopes.iter().any(|scope| self.scopes.contains(scope));
        if has_scope { Ok(()) } else { Err(OperatorForbidden::Scope) }
    }
}

/// Returns whether a use at time `now` must be recorded, given the last recorded use.
pub fn is_noted(last_used_at: Option<Timestamp>, now: Timestamp) -> bool {
    last_used_at.is_none_or(|last| last.plus(USE_NOTED_EVERY) <= now)
}

#[cfg(test)]
mod tests {
    use Effect::{Read, Write};

    use super::*;
    use crate::ledger::histories::group;

    #[test]
    fn a_key_may_do_what_its_scope_and_its_group_allow() {
        let [own, child, parent, other] = [1, 2, 3, 4].map(group);
        let subjects = [
            (Subject::Account, Err(Forbidden::KeysOfGroupOnly)),
            (Subject::Keys, Ok(())),
            (Subject::Key([Some(own), None]), Ok(())),
            (Subject::Key([Some(own), Some(parent)]), Ok(())),
            (Subject::Key([Some(child), Some(own)]), Ok(())),
            (Subject::Key([Some(parent), None]), Err(Forbidden::OutOfReach)),
            (Subject::Key([Some(other), Some(parent)]), Err(Forbidden::OutOfReach)),
            (Subject::Key([None, None]), Err(Forbidden::OutOfReach)),
        ];
        for (subject, judged) in subjects {
            let access = |scope, group| Access { scope, group };
            for effect in [Read, Write] {
                assert_eq!(may(access(Scope::Full, None), effect, subject), Ok(()));
                assert_eq!(may(access(Scope::Full, Some(own)), effect, subject), judged, "{subject:?}");
            }
            for group in [None, Some(own)] {
                assert_eq!(may(access(Scope::Read, group), Write, subject), Err(Forbidden::ReadOnly));
            }
            assert_eq!(may(access(Scope::Read, None), Read, subject), Ok(()));
            assert_eq!(may(access(Scope::Read, Some(own)), Read, subject), judged);
        }
    }

    #[test]
    fn an_operator_key_works_from_its_networks_and_with_any_of_a_routes_scopes() {
        let network = |text: &str| text.parse::<Network>().unwrap();
        let rights = |networks: Option<&[&str]>| OperatorRights {
            scopes: vec![OperatorScope::Read, OperatorScope::Credit],
            networks: networks.map(|all| all.iter().map(|text| network(text)).collect()),
            max_payment: NanoUsd::ZERO,
        };
        let inside = rights(Some(&["10.0.0.0/8", "fd00::/8"]));
        let any = [OperatorScope::Accounts, OperatorScope::Credit];
        for (from, judged) in [
            (Some("10.1.2.3"), Ok(())),
            (Some("::ffff:10.1.2.3"), Ok(())),
            (Some("fd00::1"), Ok(())),
            (Some("11.0.0.1"), Err(OperatorForbidden::Network)),
            (None, Err(OperatorForbidden::Network)),
        ] {
            let from = from.map(|from| from.parse().unwrap());
            assert_eq!(inside.may(from, &any), judged, "{from:?}");
            assert_eq!(rights(None).may(from, &any), Ok(()));
            let missing = rights(None).may(from, &[OperatorScope::Accounts, OperatorScope::Catalogue]);
            assert_eq!(missing, Err(OperatorForbidden::Scope));
        }
        assert!(rights(Some(&[])).may(Some("10.0.0.1".parse().unwrap()), &any).is_err());
    }

    #[test]
    fn a_use_is_noted_once_a_minute() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1_000);
        assert!(is_noted(None, at(0)));
        let noted = [0, 59, 60, 61].map(|seconds| is_noted(Some(at(0)), at(seconds)));
        assert_eq!(noted, [false, false, true, true]);
        assert!(!is_noted(Some(at(9)), at(0)), "a slow clock writes nothing");
    }
}
