//! A leader gives way to a candidate that shall lead rather than it.

use super::{Candidate, Effect, Loss, Name, Stage, When};
use crate::store::CandidateId;

impl Candidate {
    pub(super) fn on_hand_over(&mut self, heir: CandidateId, out: &mut Vec<Effect>) {
        if heir != self.settings.id {
            self.begin_stop(Loss::HandedOver(heir), out);
        }
    }

    /// Starts, or stops, to wait for a preferred candidate to have been healthy for long enough.
    pub(super) fn await_preferred(&mut self, out: &mut Vec<Effect>) {
        let is_leading = matches!(self.stage, Stage::Leading { .. });
        let settings = &self.settings;
        let preferred = self.roster.preferred(&settings.id, settings.priority, settings.profile.is_queue()).cloned();
        let preferred = preferred.filter(|_| is_leading);
        if preferred == self.roster.awaited {
            return;
        }
        out.push(match preferred {
            Some(_) => Effect::SetTimer(Name::Prefer, When::After(crate::handover::PREFERRED_FOR)),
            None => Effect::CancelTimer(Name::Prefer),
        });
        self.roster.awaited = preferred;
    }

    pub(super) fn on_prefer(&mut self, out: &mut Vec<Effect>) {
        if let Some(heir) = self.roster.awaited.take() {
            self.on_hand_over(heir, out);
        }
    }
}
