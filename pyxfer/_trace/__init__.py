"""What crossed the link by the device's own records, and where the rest of a trial's time went."""
