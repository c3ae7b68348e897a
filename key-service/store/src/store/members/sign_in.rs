//! Sign-in links and sessions, stored as expiring records.

use shared::time::Timestamp;

use crate::data::{ExpiringRecord, RecordKind};
use domain::{
    digest::Digest,
    member::{Link, LinkMaker, Session, SignInWay},
};
use key_service_ledger::StoreError;

/// Stored in place of the password's digest if the member had no password.
const NO_PASSWORD: &str = "-";

impl From<Link> for ExpiringRecord {
    /// The creator is the last field, since a name may contain spaces.
    fn from(Link { digest, member, expires_at, password, maker }: Link) -> Self {
        let password =
            password.map_or_else(|| NO_PASSWORD.to_owned(), |digest| hex::encode(digest.as_bytes()));
        let value = format!("{password} {maker}");
        Self { kind: RecordKind::Link, name: digest, member, expires_at, value }
    }
}

impl TryFrom<ExpiringRecord> for Link {
    type Error = StoreError;

    fn try_from(record: ExpiringRecord) -> Result<Self, StoreError> {
        let parts = || {
            let (password, maker) = record.value.split_once(' ')?;
            let password = match password {
                NO_PASSWORD => None,
                digest => Some(Digest::from_hex(digest)?),
            };
            Some((password, LinkMaker::parse(maker)?))
        };
        let (password, maker) = parts().ok_or_else(|| StoreError::Damaged("a sign-in link".into()))?;
        let ExpiringRecord { kind: _, name: digest, member, expires_at, value: _ } = record;
        Ok(Self { digest, member, expires_at, password, maker })
    }
}

impl From<Session> for ExpiringRecord {
    /// The browser's description may contain any characters, since the address after it has no line break.
    fn from(session: Session) -> Self {
        let Session { digest, id, member, agent, address, created_at, seen_at, expires_at, way } = session;
        let (created_at, seen_at) = (created_at.millis(), seen_at.millis());
        let value = format!("{id} {created_at} {seen_at} {way}\n{agent}\n{address}");
        Self { kind: RecordKind::Session, name: digest, member, expires_at, value }
    }
}

impl TryFrom<ExpiringRecord> for Session {
    type Error = StoreError;

    fn try_from(record: ExpiringRecord) -> Result<Self, StoreError> {
        let session = || {
            let (line, client) = record.value.split_once('\n')?;
            let (agent, address) = client.rsplit_once('\n')?;
            let (agent, address) = (agent.to_owned(), address.to_owned());
            let mut parts = line.splitn(4, ' ');
            let id = parts.next()?.parse().ok()?;
            let mut time = || Some(Timestamp::from_millis(parts.next()?.parse().ok()?));
            let (created_at, seen_at) = (time()?, time()?);
            let way = SignInWay::parse(parts.next()?)?;
            let ExpiringRecord { kind: _, name: digest, member, expires_at, value: _ } = record;
            Some(Self { digest, id, member, agent, address, created_at, seen_at, expires_at, way })
        };
        session().ok_or_else(|| StoreError::Damaged("a session".into()))
    }
}

#[cfg(test)]
mod tests {
    use shared::ids::{MemberId, SessionId};

    use super::*;
    use domain::ledger::histories::START;

    #[test]
    fn links_and_sessions_come_back_as_they_were_stored() {
        let member = MemberId::new(START, [1; 10]);
        let makers = [LinkMaker::Operator, LinkMaker::Member, LinkMaker::Owner("Ann van  der B".into())];
        for maker in makers {
            for password in [None, Some(Digest::of(b"password"))] {
                let digest = Digest::of(b"link");
                let link = Link { digest, member, expires_at: START, password, maker: maker.clone() };
                assert_eq!(Link::try_from(ExpiringRecord::from(link.clone())), Ok(link));
            }
            for agent in ["", "Mozilla/5.0 (X11; Linux) \n ünïcode"] {
                let session = Session {
                    digest: Digest::of(b"session"),
                    id: SessionId::new(START, [2; 10]),
                    member,
                    agent: agent.into(),
                    address: "192.0.2.1".into(),
                    created_at: Timestamp::from_millis(-5),
                    seen_at: START,
                    expires_at: START,
                    way: SignInWay::Link(maker.clone()),
                };
                assert_eq!(Session::try_from(ExpiringRecord::from(session.clone())), Ok(session));
            }
        }
    }

    #[test]
    fn a_value_of_another_kind_is_damaged() {
        let (name, member) = (Digest::of(b""), MemberId::new(START, [1; 10]));
        for value in ["", "-", "- nobody", "xyz operator", "00 1 2 password\n", "a\nb"] {
            let record = ExpiringRecord {
                kind: RecordKind::Link,
                name,
                member,
                expires_at: START,
                value: value.into(),
            };
            assert!(matches!(Link::try_from(record.clone()), Err(StoreError::Damaged(_))), "{value}");
            assert!(matches!(Session::try_from(record), Err(StoreError::Damaged(_))), "{value}");
        }
    }
}
