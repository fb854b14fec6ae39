mod deciding;
mod explaining;
mod random;
mod world;
