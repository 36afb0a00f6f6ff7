//! One candidate on a stage: its store's answers are given by hand, and what it does is asked of the last effects.

use hustings_lease::store::Standing;
use hustings_lease::{
    Answer, Attempt, Candidate, CandidateId, Change, Effect, Input, Loss, Name, Note, Observation, Profile, Request,
    Settings, Timing, Token, When,
};
use std::time::Duration;

pub struct Stage {
    pub candidate: Candidate,
    pub effects: Vec<Effect>,
    pub last: Attempt,
}

pub fn token(number: u64) -> Token {
    Token::new(number)
}

pub fn id(name: &str) -> CandidateId {
    CandidateId::named(name)
}

/// The note of a tenure that names its heir.
pub fn will(number: u64, heir: &str) -> Option<Note> {
    Some(Note { token: token(number), because: "handed over".into(), heir: Some(id(heir)), has_stopped: true })
}

pub fn standing(name: &str, priority: u32) -> Standing {
    Standing { id: id(name), priority, is_healthy: true, is_ours: true }
}

impl Stage {
    /// Candidate `a`, which has asked its first look.
    pub fn of(profile: Profile) -> Stage {
        Stage::with(profile, |_| {})
    }

    pub fn with(profile: Profile, change: impl FnOnce(&mut Settings)) -> Stage {
        let ttl = Duration::from_secs(10).max(profile.ttl_min);
        let mut settings = Settings::new(id("a"), Timing::for_store(ttl, &profile), profile);
        change(&mut settings);
        let (candidate, effects) = Candidate::start(settings).expect("the times fit");
        let mut stage = Stage { candidate, effects, last: Attempt(0) };
        stage.note_attempt();
        stage
    }

    /// It found nobody, contended and won with this token.
    pub fn leads(mut self, number: u64) -> Stage {
        self.is_answered(Answer::Gone).is_answered(Answer::Won(token(number)));
        assert!(self.believes(), "{:?}", self.effects);
        self
    }

    /// In a queue, it stands behind others, with this entry.
    pub fn waits(mut self, number: u64) -> Stage {
        self.is_answered(Answer::Gone).is_answered(Answer::Waiting(Some(token(number))));
        self
    }

    pub fn hears(&mut self, input: Input) -> &mut Stage {
        self.effects = self.candidate.handle(input);
        self.note_attempt();
        self
    }

    pub fn is_answered(&mut self, answer: Answer) -> &mut Stage {
        self.hears(Input::Answer(self.last, answer))
    }

    pub fn sees(&mut self, observation: Observation) -> &mut Stage {
        self.hears(Input::Seen(observation))
    }

    pub fn fires(&mut self, name: Name) -> &mut Stage {
        self.hears(Input::Timer(name))
    }

    fn note_attempt(&mut self) {
        for effect in &self.effects {
            if let Effect::Ask(attempt, _) = effect {
                self.last = *attempt;
            }
        }
    }

    pub fn asks(&self) -> Option<Request> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Ask(_, request) => Some(request.clone()),
            _ => None,
        })
    }

    pub fn believes(&self) -> bool {
        self.effects.iter().any(|effect| matches!(effect, Effect::Believe(..)))
    }

    pub fn stops(&self) -> Option<Loss> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Stop(_, loss) => Some(loss.clone()),
            _ => None,
        })
    }

    pub fn forgets(&self) -> Option<Loss> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Forget(loss) => Some(loss.clone()),
            _ => None,
        })
    }

    pub fn sets(&self, name: Name) -> Option<When> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::SetTimer(set, when) if *set == name => Some(*when),
            _ => None,
        })
    }

    pub fn cancels(&self, name: Name) -> bool {
        self.effects.contains(&Effect::CancelTimer(name))
    }

    pub fn tells(&self) -> Vec<Change> {
        let changes = self.effects.iter().filter_map(|effect| match effect {
            Effect::Announce(change) => Some(change.clone()),
            _ => None,
        });
        changes.collect()
    }
}
