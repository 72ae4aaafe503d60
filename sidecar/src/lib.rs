//! The mediator: routes, model client, tool executors, history.
