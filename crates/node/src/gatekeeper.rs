//! Decides by the membership who may be spoken to: [`Gatekeeper`].
//!
//! A greeting is answered with a refusal that names the thing and the remedy, or with this node's own. A peer's word about
//! itself is remembered only once a link to it is up: with a cluster secret, once it is proven.

use crate::frame::{Greeting, Hello, Refusal, SPEAKS_OF_STATE, Welcome};
use crate::link::Outbox;
use crate::peer_stream::misfit;
use crate::positions::{Positions, rolled_back};
use crate::secret;
use hustings_core::{ClusterId, Member, Membership, NodeId};
use hustings_tls::Certificate;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Decides who may be spoken to, by the replica's membership.
pub(crate) struct Gatekeeper {
    pub(crate) cluster_id: ClusterId,
    pub(crate) me: NodeId,
    pub(crate) hello: Hello,
    pub(crate) founding: Membership,
    pub(crate) membership: Arc<Membership>,
    /// Members that the membership does not know yet, to be dialled.
    pub(crate) hints: Membership,
    /// The latest life of each peer's storage that was seen: (storage incarnation, boots).
    seen: BTreeMap<NodeId, (Option<u64>, u64)>,
    /// The newest session of each peer that is connected.
    connected: BTreeMap<NodeId, Connected>,
    /// The part of its log that each peer has said to be durable, in this life of this node and before.
    pub(crate) positions: Positions,
    /// Whether callers must prove that they know the cluster's secret.
    pub(crate) has_secret: bool,
    /// Whether a peer's certificate must name it.
    pub(crate) binds_identity: bool,
}

/// A link that is up.
struct Connected {
    session: u64,
    /// Number of the process at its other end.
    process: u64,
    outbox: Rc<Outbox>,
}

/// The answer to a greeting.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The link may come up.
    Admitted,
    /// It may not, and this is why.
    Refused(Refusal),
    /// This node has not heard of the member; peers that are known may have.
    Unknown(Refusal),
    /// Another process of this member is connected, or seems to be: its link is asked whether it lives.
    Occupied(Refusal),
}

impl Answer {
    /// The refusal, if it is one.
    pub(crate) fn refusal(self) -> Option<Refusal> {
        match self {
            Answer::Admitted => None,
            Answer::Refused(refusal) | Answer::Unknown(refusal) | Answer::Occupied(refusal) => Some(refusal),
        }
    }
}

/// Instruction for bringing back a member whose directory lost what it had promised.
pub(crate) fn anew(NodeId(id): NodeId) -> String {
    format!(
        "remove the member and add it again with an empty one (`hustings member remove {id:x}`, delete the directory, `hustings member add`, and start it as that prints)"
    )
}

/// The membership as a newcomer may see it: join tokens that nobody has used yet are others' secrets.
fn without_tokens(membership: &Membership) -> Membership {
    let mut shown = membership.clone();
    shown
        .members
        .values_mut()
        .filter(|member| member.name.is_empty())
        .for_each(|member| member.storage_incarnation = None);
    shown
}

impl Gatekeeper {
    pub(crate) fn new(
        hello: Hello,
        founding: Membership,
        hints: Membership,
        has_secret: bool,
        binds_identity: bool,
        positions: Positions,
    ) -> Gatekeeper {
        Gatekeeper {
            cluster_id: hello.cluster_id,
            me: hello.from,
            hello,
            membership: Arc::new(founding.clone()),
            founding,
            hints,
            seen: BTreeMap::new(),
            connected: BTreeMap::new(),
            positions,
            has_secret,
            binds_identity,
        }
    }

    /// Whether a link to this peer, which showed this certificate, may come up; a refusal names the thing and the remedy.
    pub(crate) fn admit(&self, hello: &Hello, shown: Option<&Certificate>) -> Answer {
        let refusal = self.refusal_of_certificate(hello, shown).or_else(|| self.refusal_of_protocol(hello));
        let refusal = refusal.or_else(|| self.refusal_of_identity(hello));
        if let Some(refusal) = refusal.or_else(|| self.refusal_of_build(hello)) {
            return Answer::Refused(refusal);
        }
        let Hello { from, process, .. } = hello;
        if !self.is_known(*from) {
            return Answer::Unknown(Refusal::because(format!(
                "{} has not heard of a member {} yet and asks those that it knows; a cluster secret (--cluster-secret-file) would prove it",
                self.own_name(),
                self.called(hello)
            )));
        }
        match self.connected.get(from) {
            Some(connected) if connected.process != *process => Answer::Occupied(Refusal::because(format!(
                "another process runs as {} and is connected to {}: stop one of them, or wait until its link is down",
                self.name_of(*from),
                self.own_name()
            ))),
            _ => Answer::Admitted,
        }
    }

    /// Whether the membership names this peer, or members that this node trusts have; with a secret, any caller that knows
    /// it may be a member that this node has not heard of.
    fn is_known(&self, peer: NodeId) -> bool {
        self.membership.has(peer) || self.hints.members.contains_key(&peer) || self.has_secret
    }

    /// Whether nobody has run as this member yet: it says its name when it does.
    fn has_not_started(&self, member: NodeId) -> bool {
        self.membership.members.get(&member).is_some_and(|member| member.name.is_empty())
    }

    /// Refuses a caller that may not make itself a data directory as this member: it needs the token that the member was added with,
    /// which counts until somebody has run as it.
    fn refusal_of_beginner(&self, id: NodeId, member: &Member, hello: &Hello) -> Option<Refusal> {
        let token = member.storage_incarnation?;
        let has_begun = !member.name.is_empty() || self.seen.contains_key(&id);
        let why = match hello.member.storage_incarnation {
            _ if has_begun => format!(
                "{} has a data directory already, and this one is new: start it with its own, or remove the member and add it again",
                if member.name.is_empty() { &hello.member.name } else { &member.name }
            ),
            Some(shown) if shown == token => return None,
            None => "this member was added with a join token: give the --join-token that `member add` printed".to_owned(),
            Some(_) => {
                "this is not the join token that `member add` printed for this member: remove it and add it again for another one".to_owned()
            }
        };
        Some(Refusal::because(why))
    }

    /// Whether a member's directory can be this one: the membership knows no other.
    pub(crate) fn may_be_of(&self, member: NodeId, storage: u64) -> bool {
        let known = self.membership.members.get(&member).and_then(|known| known.storage_incarnation);
        known.is_none_or(|known| known == storage)
    }

    /// Refuses a peer whose certificate is not its own. Checked first, because nothing else in its greeting can be believed without it.
    fn refusal_of_certificate(&self, hello: &Hello, shown: Option<&Certificate>) -> Option<Refusal> {
        if !self.binds_identity {
            return None;
        }
        self.misfit_of(hello.from, &hello.member, shown)
            .map(|why| Refusal::because(format!("{} refuses {}: {why}", self.own_name(), self.called(hello))))
    }

    /// The reason why whoever shows this certificate cannot be that member, which says this of itself as far as the membership does not.
    fn misfit_of(&self, id: NodeId, said: &Member, shown: Option<&Certificate>) -> Option<String> {
        let known = self.membership.members.get(&id).or_else(|| self.hints.members.get(&id));
        // A member that was added has no name until it has started.
        let name = known.map(|known| &known.name).filter(|name| !name.is_empty()).unwrap_or(&said.name);
        let urls = known.map_or(&said.peer_urls, |known| &known.peer_urls);
        let everybody = self.membership.members.iter().chain(&self.hints.members);
        let others = everybody.filter(|(other, _)| **other != id).map(|(_, other)| other.name.clone());
        misfit(shown, name, urls, others)
    }

    /// What is believed of a refusal by whoever answered in the place of this peer: where certificates are bound to members, one that is not
    /// the peer's own ends no node and condemns no directory. Where they are not and nobody has a secret, anybody may speak for anybody.
    pub(crate) fn believed(&self, peer: NodeId, shown: Option<&Certificate>, refusal: Refusal) -> Refusal {
        let misfit = self.binds_identity.then(|| self.misfit_of(peer, &Member::default(), shown)).flatten();
        match misfit {
            None => refusal,
            Some(why) => {
                let (Refusal { why: said, .. }, name) = (refusal, self.name_of(peer));
                Refusal::because(format!("whoever answers for {name} is not believed: {why}; it says: {said}"))
            }
        }
    }

    /// Instruction for a member with another directory; where all others were restored again, it is this member that was left out.
    fn anew_or_left_out(&self, stranger: NodeId) -> String {
        let me = self.own_name();
        format!(
            "{}; but if the others were all restored again, {me} is what was left out: restore it as they were",
            anew(stranger)
        )
    }

    fn refusal_of_identity(&self, hello: &Hello) -> Option<Refusal> {
        let Hello { cluster_id, from, to, boots, member, .. } = hello;
        let who = self.called(hello);
        if *cluster_id != self.cluster_id {
            return Some(Refusal::because(format!(
                "this is cluster {} and {who} belongs to {cluster_id}: check its --initial-cluster (names and URLs, as all others have them) and --initial-cluster-token; they count where a data directory begins, so move one aside that began with others",
                self.cluster_id
            )));
        }
        if *to != self.me {
            let (own, wanted) = (self.own_name(), self.name_of(*to));
            return Some(Refusal::because(match own == wanted {
                // It took the place of a member of that name, and the one that calls has not heard of that.
                true => format!(
                    "this is {own} with the id {:x}, and {who} looks for the {wanted} with the id {:x}: it hears from the leader which of them is a member",
                    self.me.0, to.0
                ),
                false => format!("this is {own} and not {wanted}: check the peer addresses"),
            }));
        }
        if *from == self.me {
            return Some(Refusal::because(format!("two nodes run as {who}: stop one of them")));
        }
        if self.membership.has_removed(*from) {
            return Some(Refusal::of_removed(&who));
        }
        let known = self.membership.members.get(from).and_then(|known| known.storage_incarnation);
        if let Some(known) = known
            && member.storage_incarnation.map_or(self.has_not_started(*from), |theirs| theirs != known)
        {
            // The known one may be a token that nobody has used yet: it is not told.
            return Some(match self.has_not_started(*from) {
                true => Refusal::because(format!(
                    "{who} was added with a join token, and this is not it: give the --join-token that `member add` printed"
                )),
                false => Refusal::of_another_directory(format!(
                    "{} says: the data directory of {who} is not the one that the cluster knows: was it deleted? Its promises are lost, so it may not vote; {}",
                    self.own_name(),
                    self.anew_or_left_out(*from)
                )),
            });
        }
        if let Some((storage_incarnation, _)) = self.seen.get(from)
            && *storage_incarnation != member.storage_incarnation
        {
            return Some(Refusal::because(format!(
                "{} says: {who} was seen here with another data directory: was it deleted? Its promises are lost, so it may not vote; {}",
                self.own_name(),
                self.anew_or_left_out(*from)
            )));
        }
        if let Some(refusal) = self.refusal_of_rolled_back(hello) {
            return Some(refusal);
        }
        if let Some((_, seen)) = self.seen.get(from)
            && boots < seen
        {
            return Some(Refusal::because(format!(
                "{} says: the data directory of {who} is an old copy (start {boots} after start {seen} was seen): {}",
                self.own_name(),
                anew(*from)
            )));
        }
        None
    }

    /// Refuses a peer that comes back with less than it had said to be durable.
    fn refusal_of_rolled_back(&self, hello: &Hello) -> Option<Refusal> {
        let now = hello.position();
        let lack = self.positions.missing_in(&now, &hello.starts).filter(|_| hello.build.speaks >= SPEAKS_OF_STATE)?;
        let why = rolled_back(&self.called(hello), &lack, &now);
        Some(Refusal::of_rolled_back(format!("{} says: {why}", self.own_name())))
    }

    /// Refuses a peer whose build cannot apply what this node's cluster applies, or the other way round.
    fn refusal_of_build(&self, hello: &Hello) -> Option<Refusal> {
        let (mine, theirs) = (self.hello.build, hello.build);
        let them = self.called(hello);
        let (older, version, can) = match (theirs.can < mine.applies, mine.can < theirs.applies) {
            (true, _) => (them, mine.applies, theirs.can),
            (_, true) => (self.own_name(), theirs.applies, mine.can),
            _ => return None,
        };
        Some(Refusal::because(format!(
            "{older} is too old a build: this cluster computes by apply version {version}, and it can {can} at most; start it with the build that the other members run"
        )))
    }

    /// Refuses a peer that runs another protocol, whether it knows its id already or asks for it.
    fn refusal_of_protocol(&self, hello: &Hello) -> Option<Refusal> {
        let protocol = &hello.protocol;
        let who = self.called(hello);
        (*protocol != self.hello.protocol).then(|| {
            Refusal::because(format!(
                "this cluster runs `{}` and {who} was started with `{protocol}`: start all members with the same --protocol",
                self.hello.protocol
            ))
        })
    }

    /// The greeting that answers a hello.
    pub(crate) fn answer(&self, hello: &Hello, admission: Answer) -> Greeting {
        match admission.refusal() {
            Some(refusal) => Greeting::Refusal(refusal),
            None => Greeting::Hello(self.hello_to(hello.from)),
        }
    }

    pub(crate) fn hello_to(&self, peer: NodeId) -> Hello {
        Hello { to: peer, nonce: secret::nonce(), ..self.hello.clone() }
    }

    /// Whether this member is the only voter that its log knows.
    pub(crate) fn is_the_only_voter(&self) -> bool {
        self.membership.all_voters().all(|voter| voter == self.me)
    }

    /// Answers a node that was added and asks who it is, or a member that asks who the others are.
    pub(crate) fn welcome(&self, hello: &Hello, shown: Option<&Certificate>) -> Greeting {
        let seat = match hello.from {
            NodeId(0) => self.seat_of_beginner(hello, shown),
            member => self.admit(&Hello { to: self.me, ..hello.clone() }, shown).refusal().map_or(Ok(member), Err),
        };
        match seat {
            Ok(you) => Greeting::Welcome(Welcome {
                cluster_id: self.cluster_id,
                you,
                founding: self.founding.clone(),
                membership: without_tokens(&self.membership),
            }),
            Err(refusal) => Greeting::Refusal(refusal),
        }
    }

    /// The member that a node is to begin as, which has not made itself a data directory and knows its URLs alone.
    fn seat_of_beginner(&self, hello: &Hello, shown: Option<&Certificate>) -> Result<NodeId, Refusal> {
        let refusal = self.refusal_of_certificate(hello, shown);
        // Before it makes itself a data directory, which would be of the wrong protocol for good.
        let refusal = refusal.or_else(|| self.refusal_of_protocol(hello)).or_else(|| self.refusal_of_build(hello));
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        let is_asking = |urls: &[String]| urls.iter().any(|url| hello.member.peer_urls.contains(url));
        let seat = self.membership.members.iter().find(|(_, member)| is_asking(&member.peer_urls));
        match seat {
            Some((you, member)) => self.refusal_of_beginner(*you, member, hello).map_or(Ok(*you), Err),
            None => Err(Refusal::because(format!(
                "no member has the peer URL {}: add it first (`hustings member add`, or `etcdctl member add`)",
                hello.member.peer_urls.join(", ")
            ))),
        }
    }

    /// A link is up: what its peer said of itself is remembered.
    pub(crate) fn connect(&mut self, hello: &Hello, session: u64, outbox: Rc<Outbox>) {
        let Hello { from, boots, process, member, .. } = hello;
        self.seen.insert(*from, (member.storage_incarnation, *boots));
        self.connected.insert(*from, Connected { session, process: *process, outbox });
    }

    /// A link ended; one that was replaced leaves its successor's mark alone.
    pub(crate) fn disconnect(&mut self, peer: NodeId, session: u64) {
        if self.is_session(peer, session) {
            self.connected.remove(&peer);
        }
    }

    /// Whether this session is the peer's newest one, and up.
    pub(crate) fn is_session(&self, peer: NodeId, session: u64) -> bool {
        self.connected.get(&peer).is_some_and(|connected| connected.session == session)
    }

    pub(crate) fn is_connected(&self, peer: NodeId) -> bool {
        self.connected.contains_key(&peer)
    }

    /// The way to a peer that is connected.
    pub(crate) fn outbox_of(&self, peer: NodeId) -> Option<Rc<Outbox>> {
        self.connected.get(&peer).map(|connected| connected.outbox.clone())
    }

    /// Forgets the lives of members that were removed.
    pub(crate) fn forget_removed(&mut self) {
        let membership = &self.membership;
        self.seen.retain(|peer, _| !membership.has_removed(*peer));
    }

    /// Whether the peer is a member, or may become one that this node has not heard of yet.
    pub(crate) fn knows(&self, peer: NodeId) -> bool {
        !self.membership.has_removed(peer)
    }

    /// Peer URLs of all members that this node has heard of, but its own.
    pub(crate) fn known_urls(&self) -> Vec<String> {
        let known = self.membership.members.iter().chain(&self.hints.members);
        let others = known.filter(|(id, _)| **id != self.me);
        let urls: std::collections::BTreeSet<&String> = others.flat_map(|(_, member)| &member.peer_urls).collect();
        urls.into_iter().cloned().collect()
    }

    /// A member that this node knows has told it who the members are.
    pub(crate) fn learn(&mut self, welcome: Welcome) {
        if welcome.cluster_id == self.cluster_id && welcome.you == self.me {
            self.hints = welcome.membership;
        }
    }

    /// A member's name; its id while it has no name.
    pub(crate) fn name_of(&self, id: NodeId) -> String {
        match self.hello.from == id && !self.hello.member.name.is_empty() {
            true => self.hello.member.name.clone(),
            false if self.membership.members.contains_key(&id) => self.membership.name_of(id),
            false => self.hints.name_of(id),
        }
    }

    /// Name of the sender of a hello: by the membership, or else as it says.
    fn called(&self, hello: &Hello) -> String {
        match self.membership.has(hello.from) {
            true => self.name_of(hello.from),
            false => hello.who(),
        }
    }

    /// This node's name; its id while it has no name.
    fn own_name(&self) -> String {
        self.name_of(self.me)
    }

    pub(crate) fn addresses_of(&self, peer: NodeId) -> Vec<String> {
        let known = self.membership.members.get(&peer).or_else(|| self.hints.members.get(&peer));
        known.map(|member| member.peer_urls.clone()).unwrap_or_default()
    }
}
