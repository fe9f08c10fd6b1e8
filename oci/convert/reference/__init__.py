"""The models in plain float32 numpy, straight from the published weights: the truth conversions are held to."""
