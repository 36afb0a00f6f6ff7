//! The order in which callers hear of a candidacy: nobody is told that this process leads before it says so when it is asked.
//!
//! The election tells of its transitions on one task, and the sidecar begins a tenure on another, when it is about to start the command.

use hustings_election::{Change, Token};

/// Transitions that callers have not heard of yet, and the tenures that they have.
#[derive(Default)]
pub(crate) struct Telling {
    /// A transition to lead, until the tenure begins here, or the next transition comes.
    withheld: Option<Change>,
    /// The latest tenure that has begun here.
    begun: Option<Token>,
    /// The latest tenure that has begun to stop.
    stopped: Option<Token>,
}

impl Telling {
    /// Takes a transition; gives what callers hear now, in order.
    pub(crate) fn on_change(&mut self, change: &Change) -> Vec<Change> {
        if let Change::Leads(token) = change
            && self.begun != Some(*token)
        {
            self.withheld = Some(change.clone());
            return Vec::new();
        }
        if let Change::Stops(token, _) | Change::Ends(token, _) = change {
            self.stopped = Some(*token);
        }
        self.withheld.take().into_iter().chain([change.clone()]).collect()
    }

    /// A tenure begins here; gives whether it counts, for it may have been told to stop by now, and what callers hear now.
    pub(crate) fn begin(&mut self, token: Token) -> (bool, Option<Change>) {
        self.begun = Some(token);
        // By equality: where a store was replaced, tokens may fall.
        (self.stopped != Some(token), self.withheld.take_if(|change| *change == Change::Leads(token)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hustings_election::Loss;

    const TOKEN: Token = Token { generation: 0, number: 7 };

    #[test]
    fn that_it_leads_is_told_when_the_tenure_has_begun_whichever_comes_first() {
        let mut telling = Telling::default();
        assert_eq!(telling.on_change(&Change::Waits), [Change::Waits]);
        assert_eq!(telling.on_change(&Change::Leads(TOKEN)), []);
        assert_eq!(telling.begin(TOKEN), (true, Some(Change::Leads(TOKEN))));
        let mut telling = Telling::default();
        assert_eq!(telling.begin(TOKEN), (true, None));
        assert_eq!(telling.on_change(&Change::Leads(TOKEN)), [Change::Leads(TOKEN)]);
    }

    #[test]
    fn a_tenure_that_stops_before_it_has_begun_does_not_count_and_its_transitions_keep_their_order() {
        let mut telling = Telling::default();
        let stops = Change::Stops(TOKEN, Loss::Unhealthy);
        assert_eq!(telling.on_change(&Change::Leads(TOKEN)), []);
        assert_eq!(telling.on_change(&stops), [Change::Leads(TOKEN), stops.clone()]);
        assert_eq!(telling.begin(TOKEN), (false, None));
        let next = Token::new(8);
        assert_eq!(telling.begin(next), (true, None), "the next one is another matter");
    }
}
