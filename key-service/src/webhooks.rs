//! Deliveries of events to webhooks.

mod connector;
mod sender;
#[cfg(test)]
mod tests;
