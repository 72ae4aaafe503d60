//! The time in which a grant and its rules are in force.

use jiff::Timestamp;

/// A window whose ends are parsed. Without an end it is open on that side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Gives nothing before this time.
    pub not_before: Option<Timestamp>,
    /// Gives nothing from this time on.
    pub not_after: Option<Timestamp>,
}

/// Where a time lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowState {
    /// Before the window, which begins at this time.
    NotYet(Timestamp),
    Open,
    /// After the window, which ended at this time.
    Over(Timestamp),
}

impl Window {
    /// Reads the ends for a message or a status. An end that cannot be read is missing: compile
    /// reports it, and a rule with it gives nothing.
    pub fn readable(not_before: Option<&str>, not_after: Option<&str>) -> Self {
        let time = |text: Option<&str>| text?.parse().ok();
        Self {
            not_before: time(not_before),
            not_after: time(not_after),
        }
    }

    pub fn state(&self, now: Timestamp) -> WindowState {
        match (self.not_before, self.not_after) {
            (Some(begin), _) if now < begin => WindowState::NotYet(begin),
            (_, Some(end)) if end <= now => WindowState::Over(end),
            (_, _) => WindowState::Open,
        }
    }

    /// Returns the first time after `now` at which the window opens or closes.
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let ends = [self.not_before, self.not_after];
        ends.into_iter().flatten().filter(|end| *end > now).min()
    }
}
