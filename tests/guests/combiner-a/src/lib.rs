//! Answers every event as a test tells it: see `guest`. There are three of its kind, for
//! what several extensions do with each other.

mod guest;

const ID: &str = "combiner-a";
