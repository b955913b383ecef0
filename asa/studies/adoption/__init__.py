"""What asa's ways of submitting jobs do to everybody, if a share of a site's users adopts them."""
