//! Every line that a script may have: [`HEADERS`] and [`GRAMMAR`], and in a trace of the checker [`BOUNDS`] and [`TRACE`]. The parser
//! takes the words that it knows from these tables, and the page of the grammar is printed from them, so neither has a word that the
//! other lacks. Each row has an example, which a test parses.
//!
//! [`crate::Command`] and [`crate::Settings`] tell in detail what each line does.

/// One kind of line: its form, an example that parses, and its effect.
pub struct Sentence {
    /// Words in small letters stand as they are; those in capitals stand for something.
    pub form: &'static str,
    /// A line of this form.
    pub example: &'static str,
    /// Its effect, in words for people.
    pub does: &'static str,
}

const fn line(form: &'static str, example: &'static str, does: &'static str) -> Sentence {
    Sentence { form, example, does }
}

impl Sentence {
    /// The word that such a line begins with.
    pub fn beginning(&self) -> &'static str {
        self.form.split_once(' ').map_or(self.form, |(word, _)| word)
    }

    /// The words that begin its options: what stands in brackets.
    pub fn options(&self) -> impl Iterator<Item = &'static str> {
        let words = self.form.split('[').skip(1).filter_map(|option| option.split([' ', ']']).next());
        words.filter(|part| is_word(part))
    }
}

/// The words that a line may begin with, in the order of the tables.
pub fn beginnings() -> Vec<&'static str> {
    let mut words: Vec<&str> = HEADERS.iter().chain(&GRAMMAR).map(Sentence::beginning).collect();
    words.dedup();
    words
}

/// The rows of one statement.
fn rows(statement: &str) -> impl Iterator<Item = &'static Sentence> {
    HEADERS.iter().chain(&GRAMMAR).filter(move |row| row.beginning() == statement)
}

/// Whether a part of a form stands in lines as it is.
fn is_word(part: &str) -> bool {
    part.starts_with(|letter: char| letter.is_ascii_lowercase())
        && part.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-')
}

/// The words in small letters that lines of a statement have behind its first word, options apart.
pub fn fixed(statement: &str) -> Vec<&'static str> {
    let words = |row: &'static Sentence| {
        let outside = row.form.split('[').filter_map(|part| part.rsplit(']').next());
        outside.flat_map(|part| part.split([' ', '|'])).skip(1).filter(|part| is_word(part))
    };
    rows(statement).flat_map(words).collect()
}

/// The words that begin the options of a statement.
pub fn options(statement: &str) -> Vec<&'static str> {
    rows(statement).flat_map(Sentence::options).collect()
}

/// Lines about how the world is made; they stand first.
pub const HEADERS: [Sentence; 7] = [
    line(
        "cluster NUMBER [seed N] [snapshots N] [messages N] [trailing N] [restart TIME] [uncommitted N] [slice N]",
        "cluster 3 seed 7 snapshots 50 restart 2s",
        "so many members; the seed of chance; entries after which a snapshot is cut; most bytes of a message; entries kept below a snapshot; when a member that ended by itself starts again; most bytes that are not committed; cost of the commands that a member applies in one turn",
    ),
    line(
        "timing HEARTBEAT SHORTEST LONGEST [succession 0|1]",
        "timing 50ms 300ms 600ms",
        "the heartbeat interval, and the range of the election timeout; whether the first in line after a leader draws from the beginning of it, as in a server",
    ),
    line(
        "network SHORTEST LONGEST [loss N] [duplicates N]",
        "network 1ms 5ms loss 10000 duplicates 0",
        "delays of messages; how many of a million are lost, and arrive twice",
    ),
    line("syncs SHORTEST LONGEST", "syncs 100us 2ms", "what a sync of a disk takes"),
    line(
        "priorities preferred|normal|never|witness ...",
        "priorities preferred normal witness",
        "who should lead, who should not, and who holds no state: one word a member, in order",
    ),
    line(
        "regions virginia|oregon|ireland|tokyo|sao-paulo ...",
        "regions virginia ireland tokyo",
        "where the members are, one word a member, and from the first again: messages take the round trips of docs/regions.md",
    ),
    line(
        "load [clients N] [keys N] [pause TIME] [patience TIME] [watchers N] [rivals N] [candidates N] [values N] [stays 0|1]",
        "load clients 3 keys 10 pause 100ms",
        "clients that write, read and compare; how many keys; how long they pause and wait; watchers; rivals for a lock; candidates of an election; bytes of a value; whether a client stays with its member",
    ),
];

/// Lines about what is done to the world, in order.
pub const GRAMMAR: [Sentence; 54] = [
    line("wait TIME", "wait 250ms", "time passes"),
    line(
        "settle TIME",
        "settle 5s",
        "time passes until a leader serves everybody who is connected to it, at most so long",
    ),
    line(
        "peace [COMMAND; COMMAND...]",
        "peace crash n3; wait 100ms; mute n4 n2",
        "all is made well, and the cluster must serve; these go wrong, and the others must serve if a quorum of them reach each other; all is well again, and all members must be alike; behind it no client asks anything",
    ),
    line("crash WHO", "crash leader", "the process ends; the machine goes on, and peers see it"),
    line(
        "power-off WHO",
        "power-off n1",
        "the power goes: what was not synced is lost sector by sector, and peers see nothing",
    ),
    line("restart WHO", "restart all", "the process starts again"),
    line("pause WHO", "pause leader", "the process stands still (SIGSTOP)"),
    line("resume WHO", "resume all", "it goes on"),
    line("mute FROM TO", "mute others leader", "nothing that the first says reaches the second"),
    line("cut ONE OTHER", "cut n1 follower.2", "nothing reaches the other, either way"),
    line("isolate WHO", "isolate leader", "it is cut off from all others"),
    line("partition WHO... | WHO...", "partition n1 n2 | n3", "only members of the same group reach each other"),
    line(
        "slow FROM TO SHORTEST LONGEST",
        "slow n1 n2 100ms 300ms",
        "what the first says takes so long to reach the second",
    ),
    line(
        "delay FROM TO TIME [PLACE]",
        "delay n1 n2 2s",
        "a message under way takes so much longer: the next to arrive, or the one at this place, from 1",
    ),
    line("heal", "heal", "all links are whole again"),
    line("mend ONE OTHER", "mend n1 n2", "these two reach each other again"),
    line("reset ONE OTHER", "reset n1 n2", "the connection breaks, and both see it"),
    line(
        "links SHORTEST LONGEST [loss N] [duplicates N]",
        "links 1ms 5ms loss 0 duplicates 0",
        "all links, from now on, as `network` has them",
    ),
    line("disk WHO stall", "disk leader stall", "nothing that is asked of the disk gets done"),
    line("disk WHO recover", "disk n1 recover", "it works again, and keeps its word"),
    line(
        "disk WHO lie",
        "disk n1 lie",
        "syncs of its log say that they are done, and do nothing: the next power cut takes what was said",
    ),
    line("disk WHO slow TIME", "disk n2 slow 300ms", "a sync takes so long"),
    line("disk WHO full BYTES", "disk n1 full 4096", "so many more bytes, then it is full"),
    line("disk WHO roomy", "disk n1 roomy", "it has room again"),
    line("disk WHO fail N", "disk n1 fail 3", "the n-th operation from now fails"),
    line(
        "disk WHO crash-at N",
        "disk n1 crash-at 3",
        "the machine stops at the n-th operation from now, which may or may not have happened",
    ),
    line(
        "disk WHO misdirect N",
        "disk n1 misdirect 3",
        "the n-th operation from now, if it is a write, lands some sectors further on",
    ),
    line("disk WHO rot N", "disk n1 rot 3", "the n-th read from now has a flipped bit"),
    line("wipe WHO", "wipe n2", "the disk is replaced by a blank one, under the same identity"),
    line("clock WHO SPEED", "clock n1 1200000", "its clock runs at so many millionths of its proper speed"),
    line("suspend WHO TIME", "suspend n1 10s", "the machine sleeps: its boot clock goes on, its process does not"),
    line("transfer WHO", "transfer n2", "the leader hands over to it"),
    line("resign WHO", "resign leader", "it stops leading"),
    line("campaign WHO", "campaign n2", "it campaigns"),
    line("forget-leader WHO", "forget-leader n2", "it treats its leader as unknown"),
    line(
        "retime WHO PERCENT",
        "retime n1 200",
        "its heartbeat and election times are so many hundredths of the first ones",
    ),
    line(
        "operator WHO",
        "operator n2",
        "the member that is asked for changes of membership from now on; at first the leader",
    ),
    line("pace TIME", "pace 10ms", "clients pause so long between two operations; 0s: as at first"),
    line(
        "damage FROM TO N",
        "damage n1 n2 1",
        "the bytes of so many messages are damaged on their way: the link ends, and nothing else",
    ),
    line("remove WHO", "remove n3", "it leaves the cluster"),
    line("join", "join", "a new member comes, as a learner that votes when it has caught up"),
    line("voters WHO...", "voters n1 n2 n4", "all voters are replaced by these, through a joint change"),
    line("put KEY VALUE [at WHO]", "put colour green at n1", "a client writes, through this member"),
    line("get KEY [at WHO]", "get colour", "a client reads, through this member, and its answer is told"),
    line("lease NUMBER TIME", "lease 7 10s", "a client is granted a lease through the leader, and never renews it"),
    line("mark", "mark", "changes of leader, and outages, are counted from here on"),
    line("expect leader WHO", "expect leader n1", "this one leads"),
    line("expect no-leader", "expect no-leader", "nobody leads who could commit"),
    line("expect changes LEAST [to MOST]", "expect changes 0 to 1", "so many changes of leader since the mark"),
    line("expect outage TIME", "expect outage 3s", "no operation of a client took longer to end well since the mark"),
    line("expect same", "expect same", "all that run hold and have applied the same"),
    line("expect lease NUMBER", "expect lease 7", "the lease lives, as the leader has applied"),
    line("expect no-lease NUMBER", "expect no-lease 7", "it does not"),
    line("expect refused WHO", "expect refused n1", "the member is down, and refused to start"),
];

/// The first line of a trace of `hustings check`: its bounds, which that command takes as options.
pub const BOUNDS: Sentence = line(
    "every [nodes N] [learners N] [witnesses N] [terms N] [crashes N] [proposals N] [fires N] [timers N] [link N] [notices yes|no] [duplicates yes|no]",
    "every nodes 3 terms 2 crashes 1 proposals 1 fires 2 timers 1 link 1 notices yes duplicates no",
    "the first line: how many of each there may be at most; messages that one link holds; whether members see that a link ends, and whether a message may arrive twice. What is left out is as in `hustings check`",
);

/// The lines below it: one input each, as the checker calls it.
pub const TRACE: [Sentence; 7] = [
    line("fire WHO TIMER", "fire n1 Protocol(Election)", "this timer of the member is due"),
    line(
        "deliver FROM TO MESSAGE",
        "deliver n1 n2 Protocol(Vote(VoteRequest { term: t1, last: 0:0, commit: 0:0, priority: Normal, is_transfer: false }))",
        "the message arrives",
    ),
    line("propose WHO NUMBER", "propose n3 1", "a client writes through this member; writes are numbered"),
    line("link-down WHO OTHER", "link-down n2 n3", "the member sees that its link from the other has ended"),
    line("crash WHO", "crash n1", "the process ends"),
    line("restart WHO", "restart n2", "it starts again, from its disk"),
    line(
        "LINE, and WHO crashes with N of its records written",
        "fire n2 Protocol(Election), and n2 crashes with 0 of its records written",
        "the member ends in the middle of what this line makes it do",
    ),
];

/// The tables of the page, in Markdown.
pub fn tables() -> String {
    let mut text = String::new();
    for (title, rows) in [
        ("How the world is made", &HEADERS[..]),
        ("What is done to it", &GRAMMAR[..]),
        ("How a trace begins", &[BOUNDS][..]),
        ("The steps of a trace", &TRACE[..]),
    ] {
        text.push_str(&format!("## {title}\n\n| line | for example | what it does |\n|---|---|---|\n"));
        for Sentence { form, example, does } in rows {
            let shown = |line: &str| line.replace('|', "\\|");
            text.push_str(&format!("| `{}` | `{}` | {does} |\n", shown(form), shown(example)));
        }
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}
