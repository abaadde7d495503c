//! Uses the WIT world as it is, without the SDK: see `guest`. There is a `second` of
//! its kind, for what several extensions do with each other.

mod guest;

const ID: &str = "first";
