mod clusters;
mod placing;
mod random;
mod world;
