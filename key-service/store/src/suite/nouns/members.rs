//! Cases about members, their sign-in links and sessions, and attempts to sign in.

use std::time::Duration;

use futures_util::future::join_all;
use shared::{
    ids::{AccountId, MemberId},
    time::Timestamp,
};
use tokio::time::sleep;

use crate::{
    store::{
        Error, ExpiringRecord,
        RecordKind::{Link, Session},
        Store,
    },
    suite::{
        Subject, act, after, digest,
        nouns::steps::{kept, member, session},
        open_account,
    },
};
use domain::{
    event::EventKind,
    ledger::histories::{START, account, group},
    member::{LinkMaker, MadeLink, Member, MemberChange, MemberRefused, PasswordHash, Role, RoleChange},
    second_factor::{FactorId, SecondFactor},
};

/// Creates a member in an account that may have a hundred members.
async fn make(store: &Store, account: AccountId, member: Member) -> Result<(), Error<MemberRefused>> {
    store.create_member(account, member, 100, &act(START)).await
}

async fn add(store: &Store, account: AccountId, n: u8) -> Member {
    assert_eq!(make(store, account, member(n)).await, Ok(()));
    member(n)
}

fn new_role(role: Role) -> MemberChange {
    MemberChange { role: Some(RoleChange { role, act: act(after(3)) }), ..MemberChange::default() }
}

fn link(n: u8, member: MemberId, expires_at: Timestamp) -> ExpiringRecord {
    let name = digest(&format!("link {n}"));
    ExpiringRecord { kind: Link, name, member, expires_at, value: format!("link of Ünï {n}\n") }
}

/// Lists the member's sessions, sorted by their values.
async fn sessions(
    store: &Store,
    account: AccountId,
    member: MemberId,
    now: Timestamp,
) -> Vec<ExpiringRecord> {
    let mut sessions = store.records(account, Session, member, now).await.unwrap();
    sessions.sort_by(|a, b| a.value.cmp(&b.value));
    sessions
}

pub(crate) async fn members_are_listed_oldest_first_each_in_its_account(subject: &mut impl Subject) {
    let store = subject.store();
    let (mine, theirs) = (open_account(store, 1).await, open_account(store, 2).await);
    for (account, n) in [(mine, 3), (theirs, 2), (mine, 1)] {
        add(store, account, n).await;
    }
    subject.interrupt().await;
    let store = subject.store();
    // A caller that has not received the answer repeats the call.
    assert_eq!(make(store, mine, member(3)).await, Ok(()));
    assert_eq!(store.members(mine).await.unwrap(), [member(1), member(3)]);
    assert_eq!(store.members(account(9)).await.unwrap(), []);
    // A name is taken only within its own account.
    let namesake = Member { name: member(1).name, ..member(8) };
    assert_eq!(make(store, mine, namesake.clone()).await, Err(MemberRefused::NameTaken.into()));
    assert_eq!(make(store, theirs, namesake).await, Ok(()));
    store.create_member(account(9), member(1), 100, &act(START)).await.unwrap_err();
}

pub(crate) async fn a_member_is_found_by_its_name(subject: &mut impl Subject) {
    let store = subject.store();
    let (mine, theirs) = (open_account(store, 1).await, open_account(store, 2).await);
    let (one, two) = (add(store, mine, 1).await, add(store, mine, 2).await);
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(store.member_named(mine, &one.name).await.unwrap(), Some(one.clone()));
    assert_eq!(store.member_named(mine, &two.name).await.unwrap(), Some(two));
    assert_eq!(store.member_named(theirs, &one.name).await.unwrap(), None);
    assert_eq!(store.member_named(account(9), &one.name).await.unwrap(), None);
    assert_eq!(store.member_named(mine, &one.name.to_uppercase()).await.unwrap(), None);
    // Removing a member frees the name.
    store.remove_member(mine, one.id, &act(START)).await.unwrap();
    assert_eq!(store.member_named(mine, &one.name).await.unwrap(), None);
    let heir = Member { name: one.name.clone(), ..member(7) };
    assert_eq!(make(store, mine, heir.clone()).await, Ok(()));
    assert_eq!(store.member_named(mine, &one.name).await.unwrap(), Some(heir));
}

pub(crate) async fn an_account_has_no_more_members_than_it_may(subject: &mut impl Subject) {
    let store = subject.store();
    let (mine, theirs) = (open_account(store, 1).await, open_account(store, 2).await);
    for n in [1, 2] {
        assert_eq!(store.create_member(mine, member(n), 2, &act(START)).await, Ok(()));
    }
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(
        store.create_member(mine, member(3), 2, &act(START)).await,
        Err(MemberRefused::TooMany.into())
    );
    assert_eq!(store.member_named(mine, &member(3).name).await.unwrap(), None);
    assert_eq!(store.members(mine).await.unwrap(), [member(1), member(2)]);
    // A caller that has not received the answer repeats the call. A taken name is reported before any other fault.
    assert_eq!(store.create_member(mine, member(2), 2, &act(START)).await, Ok(()));
    let namesake = Member { name: member(1).name, ..member(8) };
    assert_eq!(
        store.create_member(mine, namesake, 2, &act(START)).await,
        Err(MemberRefused::NameTaken.into())
    );
    assert_eq!(store.create_member(theirs, member(4), 2, &act(START)).await, Ok(()));
    // Removing a member makes room for another.
    store.remove_member(mine, member(1).id, &act(START)).await.unwrap();
    assert_eq!(store.create_member(mine, member(3), 2, &act(START)).await, Ok(()));
}

pub(crate) async fn members_at_once_are_no_more_than_there_may_be(subject: &mut impl Subject) {
    let store = subject.store();
    let mine = open_account(store, 1).await;
    let act = &act(START);
    let made = join_all((0..20).map(|n| store.create_member(mine, member(n), 5, act))).await;
    let made = made.into_iter().flatten().count();
    assert_eq!((made, store.members(mine).await.unwrap().len()), (5, 5));
}

pub(crate) async fn a_change_of_a_member_changes_what_it_names(subject: &mut impl Subject) {
    let store = subject.store();
    let (mine, theirs) = (open_account(store, 1).await, open_account(store, 2).await);
    let one = add(store, mine, 1).await;
    let (owner, lead) = (new_role(Role::Owner), new_role(Role::Lead(group(1))));
    let secret =
        MemberChange { password: Some(PasswordHash("$argon2id$x".into())), ..MemberChange::default() };
    let seen = MadeLink { by: LinkMaker::Owner("Bob the owner".into()), at: after(7) };
    let seen = MemberChange { last_link: Some(seen), ..MemberChange::default() };
    store.update_member(mine, one.id, owner.clone()).await.unwrap();
    store.update_member(mine, one.id, secret.clone()).await.unwrap();
    store.update_member(mine, one.id, seen.clone()).await.unwrap();
    store.update_member(mine, one.id, lead.clone()).await.unwrap();
    store.update_member(mine, one.id, MemberChange::default()).await.unwrap();
    assert_eq!(store.update_member(theirs, one.id, owner.clone()).await, Err(MemberRefused::NotFound.into()));
    subject.interrupt().await;
    assert_eq!(
        subject.store().members(mine).await.unwrap(),
        [one.changed(owner).changed(secret).changed(seen).changed(lead)]
    );
}

pub(crate) async fn another_role_is_told_and_the_same_one_is_not(subject: &mut impl Subject) {
    let store = subject.store();
    let mine = open_account(store, 1).await;
    let one = add(store, mine, 1).await;
    let [of_one, of_two] = [1, 2].map(|n| Role::Lead(group(n)));
    for role in [Role::Viewer, of_one, of_one, of_two, Role::Owner] {
        store.update_member(mine, one.id, new_role(role)).await.unwrap();
    }
    subject.interrupt().await;
    let told = kept(subject.store(), mine).await.into_iter().filter_map(|told| match told.event.kind {
        EventKind::MemberRoleChanged {
            member_id,
            name,
            role,
            group_id,
            previous_role,
            previous_group_id,
        } => {
            assert_eq!((told.event.at, member_id, name), (after(3), one.id, one.name.clone()));
            Some(((previous_role, previous_group_id), (role, group_id)))
        }
        _ => None,
    });
    let lead = |n| ("lead".to_owned(), Some(group(n)));
    let [viewer, owner] = ["viewer", "owner"].map(|role| (role.to_owned(), None));
    let expected = [(viewer, lead(1)), (lead(1), lead(2)), (lead(2), owner)];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

pub(crate) async fn a_second_factor_is_replaced_once_and_tells_when_it_comes_and_goes(
    subject: &mut impl Subject,
) {
    let store = subject.store();
    let (mine, theirs) = (open_account(store, 1).await, open_account(store, 2).await);
    let none = add(store, mine, 1).await;
    let recovery = vec![digest("one"), digest("two")];
    let factor = SecondFactor { id: FactorId([7; 16]), secret: digest("secret"), last_step: 41, recovery };
    let with = |second_factor| Member { second_factor, ..none.clone() };
    let first = with(Some(factor.clone()));
    let later = with(factor.after_step(u64::MAX));
    let replace = async |before: &Member, after: &Member| {
        store.replace_second_factor(mine, before, after.second_factor.clone(), &act(START)).await.unwrap()
    };
    assert!(!replace(&first, &later).await, "there is none");
    assert!(replace(&none, &first).await);
    assert!(!store.replace_second_factor(theirs, &first, None, &act(START)).await.unwrap());
    let attempts = join_all((0..8).map(|_| replace(&first, &later))).await;
    assert_eq!(
        attempts.into_iter().filter(|is_replaced| *is_replaced).count(),
        1,
        "only one of many concurrent calls succeeds"
    );
    store.put_record(mine, session(1, none.id), &act(START)).await.unwrap();
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(store.members(mine).await.unwrap(), std::slice::from_ref(&later));
    assert_eq!(store.member_named(mine, &none.name).await.unwrap().as_ref(), Some(&later));
    let (_, found) = store.record(mine, Session, digest("session 1"), START).await.unwrap().unwrap();
    assert_eq!(found, later);
    let owner = new_role(Role::Owner);
    store.update_member(mine, none.id, owner.clone()).await.unwrap();
    assert!(!store.replace_second_factor(mine, &first, None, &act(START)).await.unwrap());
    assert!(store.replace_second_factor(mine, &later, None, &act(START)).await.unwrap());
    assert!(!store.replace_second_factor(mine, &later, None, &act(START)).await.unwrap());
    assert_eq!(store.members(mine).await.unwrap(), [none.changed(owner)]);
    let told = kept(store, mine).await;
    let told = told.iter().map(|numbered| numbered.event.kind.as_str());
    let told: Vec<_> = told.filter(|kind| kind.contains("second_factor")).collect();
    assert_eq!(told, ["member.second_factor_enabled", "member.second_factor_removed"]);
}

pub(crate) async fn a_removed_member_takes_its_links_and_sessions_along(subject: &mut impl Subject) {
    let store = subject.store();
    let mine = open_account(store, 1).await;
    let (gone, stays) = (add(store, mine, 1).await, add(store, mine, 2).await);
    for (n, of) in [(1, gone.id), (2, stays.id)] {
        store.put_record(mine, link(n, of, after(50)), &act(START)).await.unwrap();
        store.put_record(mine, session(n, of), &act(START)).await.unwrap();
    }
    store.remove_member(mine, gone.id, &act(START)).await.unwrap();
    assert_eq!(store.remove_member(mine, gone.id, &act(START)).await, Err(MemberRefused::NotFound.into()));
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(store.members(mine).await.unwrap(), std::slice::from_ref(&stays));
    assert_eq!(store.take_record(mine, Link, digest("link 1"), START).await.unwrap(), None);
    assert_eq!(store.record(mine, Session, digest("session 1"), START).await.unwrap(), None);
    assert_eq!(
        store.update_member(mine, gone.id, MemberChange::default()).await,
        Err(MemberRefused::NotFound.into())
    );
    assert!(store.record(mine, Session, digest("session 2"), START).await.unwrap().is_some());
    // The name is free again. The next member with this name has no sessions.
    let heir = Member { name: gone.name, ..member(7) };
    assert_eq!(make(store, mine, heir).await, Ok(()));
    assert_eq!(store.records(mine, Session, member(7).id, START).await.unwrap(), []);
}

pub(crate) async fn a_link_signs_in_once_and_before_it_expires(subject: &mut impl Subject) {
    let store = subject.store();
    let (mine, theirs) = (open_account(store, 1).await, open_account(store, 2).await);
    let one = add(store, mine, 1).await;
    let two = add(store, mine, 2).await;
    let made = link(1, one.id, after(10));
    store.put_record(mine, link(3, one.id, after(20)), &act(START)).await.unwrap();
    store.put_record(mine, made.clone(), &act(START)).await.unwrap();
    store.put_record(mine, link(2, two.id, after(20)), &act(START)).await.unwrap();
    assert_eq!(
        store.take_record(mine, Link, digest("link 3"), START).await.unwrap(),
        None,
        "a newer link replaced it"
    );
    assert_eq!(store.take_record(theirs, Link, digest("link 1"), START).await.unwrap(), None);
    assert_eq!(store.record(theirs, Link, digest("link 1"), START).await.unwrap(), None);
    assert_eq!(store.record(mine, Link, digest("link 2"), after(20)).await.unwrap(), None, "expired");
    assert_eq!(store.take_record(mine, Link, digest("link 2"), after(20)).await.unwrap(), None, "expired");
    subject.interrupt().await;
    let store = subject.store();
    let found = Some((made.clone(), one.clone()));
    assert_eq!(
        store.record(mine, Link, digest("link 1"), after(9)).await.unwrap(),
        found,
        "reading does not use up the link"
    );
    let attempts = (0..8).map(|_| store.take_record(mine, Link, digest("link 1"), after(9)));
    let taken: Vec<_> = join_all(attempts).await.into_iter().filter_map(Result::unwrap).collect();
    assert_eq!(taken, [(made, one)], "only one of many concurrent calls succeeds");
    assert_eq!(store.take_record(mine, Link, digest("link 1"), after(9)).await.unwrap(), None);
    assert_eq!(store.record(mine, Link, digest("link 1"), after(9)).await.unwrap(), None);
}

pub(crate) async fn a_session_lives_until_it_expires_or_is_ended(subject: &mut impl Subject) {
    let store = subject.store();
    let (mine, theirs) = (open_account(store, 1).await, open_account(store, 2).await);
    let one = add(store, mine, 1).await;
    for n in [2, 1, 3] {
        store.put_record(mine, session(n, one.id), &act(START)).await.unwrap();
    }
    let of = |n: u8| session(n, one.id);
    assert_eq!(store.record(theirs, Session, of(1).name, START).await.unwrap(), None);
    assert_eq!(sessions(store, mine, one.id, START).await, [of(1), of(2), of(3)]);
    let touched = |n| ExpiringRecord { expires_at: after(160), value: format!("{n} seen"), ..of(n) };
    store.replace_record(mine, touched(1)).await.unwrap();
    store.remove_record(mine, Session, of(2).name).await.unwrap();
    store.remove_record(mine, Session, of(2).name).await.unwrap();
    store.replace_record(mine, touched(2)).await.unwrap();
    let touched = touched(1);
    assert_eq!(
        store.record(mine, Session, of(1).name, after(159)).await.unwrap(),
        Some((touched.clone(), one.clone()))
    );
    assert_eq!(store.record(mine, Session, of(1).name, after(160)).await.unwrap(), None);
    assert_eq!(store.record(mine, Session, of(2).name, START).await.unwrap(), None, "it has ended");
    assert_eq!(store.record(mine, Session, of(3).name, after(100)).await.unwrap(), None, "it has expired");
    assert_eq!(sessions(store, mine, one.id, after(120)).await, [touched]);
}

pub(crate) async fn attempts_are_counted_until_they_are_forgotten(subject: &mut impl Subject) {
    let store = subject.store();
    let (mallory, alice) = (digest("mallory"), digest("alice"));
    let soon = START.plus(Duration::from_millis(400));
    let counts = (0..5).map(|_| store.count_attempt(mallory, START, after(1000)));
    let mut counts: Vec<u64> = join_all(counts).await.into_iter().map(Result::unwrap).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 2, 3, 4, 5]);
    store.take_attempt_back(mallory).await.unwrap();
    assert_eq!(
        store.count_attempt(mallory, START, after(1000)).await.unwrap(),
        5,
        "one attempt was uncounted"
    );
    store.take_attempt_back(digest("unknown")).await.unwrap();
    assert_eq!(store.count_attempt(alice, START, soon).await.unwrap(), 1);
    store.forget_attempts(mallory).await.unwrap();
    assert_eq!(store.count_attempt(mallory, START, after(1000)).await.unwrap(), 1);
    // This waits, because a store may use its own clock.
    sleep(Duration::from_millis(500)).await;
    assert_eq!(store.count_attempt(alice, soon, after(1000)).await.unwrap(), 1, "the count has expired");
}
