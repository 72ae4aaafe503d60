//! Pure: a turn as a state machine; ownership, limits, trace.
